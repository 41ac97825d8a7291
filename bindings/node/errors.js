/** What a call that failed throws, or its promise rejects with. */
export class AwarenessError extends Error {
  constructor(code, message, field) {
    super(message);
    this.code = code;
    this.field = field;
  }

  get name() {
    return this.constructor.name;
  }
}

export class InvalidArgumentError extends AwarenessError {}
export class NotFoundError extends AwarenessError {}
export class StorageError extends AwarenessError {}
export class BusyError extends AwarenessError {}
export class ClosedError extends AwarenessError {}
export class UnsupportedError extends AwarenessError {}
export class InternalError extends AwarenessError {}

const CLASSES = {
  invalid_argument: InvalidArgumentError,
  not_found: NotFoundError,
  storage: StorageError,
  busy: BusyError,
  closed: ClosedError,
  unsupported: UnsupportedError,
  internal: InternalError,
};

/** The error of a code's own class; a code this version does not know gets the base class. */
export function awarenessError(code, message, field) {
  return new (CLASSES[code] ?? AwarenessError)(code, message, field);
}
