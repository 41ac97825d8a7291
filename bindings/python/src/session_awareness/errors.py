"""The exceptions: one class for each error code of the library."""

from __future__ import annotations


class AwarenessError(Exception):
    """An error the library answered.

    `code` is its code as the library spells it, `message` says what is wrong, and `field` names the
    request field at fault (as the library spells it: `sessionKey`), or is None.
    """

    def __init__(self, code: str, message: str, field: str | None = None) -> None:
        super().__init__(code, message, field)
        self.code = code
        self.message = message
        self.field = field

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class InvalidArgument(AwarenessError):
    """The request is wrong (`invalid_argument`); nothing was stored."""


class NotFound(AwarenessError):
    """What the request names is not there (`not_found`)."""


class StorageError(AwarenessError):
    """The database could not be read or written (`storage`)."""


class Busy(AwarenessError):
    """The call cannot be carried out now (`busy`): another process held the database for longer than
    `busy_timeout_ms`, or a handle is to be closed from its own wake callback."""


class Closed(AwarenessError):
    """The handle is closed, or was taken across a fork (`closed`)."""


class Unsupported(AwarenessError):
    """This library, handle or file system does not offer it (`unsupported`)."""


class Internal(AwarenessError):
    """A fault of the library itself (`internal`); the handle stays usable."""


_BY_CODE: dict[str, type[AwarenessError]] = {
    "invalid_argument": InvalidArgument,
    "not_found": NotFound,
    "storage": StorageError,
    "busy": Busy,
    "closed": Closed,
    "unsupported": Unsupported,
    "internal": Internal,
}


def error(code: str, message: str, field: str | None = None) -> AwarenessError:
    """The exception for an error reply; `AwarenessError` itself for a code of a later library."""
    return _BY_CODE.get(code, AwarenessError)(code, message, field)
