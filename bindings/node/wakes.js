import { Socket } from 'node:net';
import { ClosedError, awarenessError } from './errors.js';
import { call, duplicate, wakeFd } from './ffi.js';

/**
 * Waits for the wakes of one handle, for any number of takers, on the library's wake descriptor: no thread is parked,
 * the event loop stays free, and waiting keeps the process alive for those takers alone that ask for it. A wake leaves
 * the library's queue only for a taker that is there to get it, so none is lost when one gives up.
 */
export class WakeQueue {
  #handle;
  #socket;
  #takers = new Set();
  #asking;
  #rung = false;
  #ended;

  constructor(handle) {
    this.#handle = handle;
  }

  /** Asks for up to `max` wakes; `wakes` resolves when there is one at least, or with none after `cancel()`. */
  take(max, keepAlive) {
    const taker = { max, keepAlive, cancelled: false };
    taker.wakes = new Promise((resolve, reject) => Object.assign(taker, { resolve, reject }));
    taker.cancel = () => {
      // What is being asked for may have left the library already, and has nobody else to go to.
      if (taker === this.#asking) taker.cancelled = true;
      else this.#answer(taker, []);
    };
    if (this.#ended) {
      taker.reject(this.#ended);
    } else {
      this.#takers.add(taker);
      this.#hold();
      this.#ring();
    }
    return taker;
  }

  /** Ends every wait with `closed`. The library's own descriptor stays the library's to close. */
  close() {
    this.#end(awarenessError('closed', 'the handle is closed'));
  }

  #answer(taker, wakes) {
    this.#takers.delete(taker);
    this.#hold();
    taker.resolve(wakes);
  }

  /** Holds the process while someone waits who wants that. */
  #hold() {
    for (const taker of this.#takers) {
      if (taker.keepAlive) return void this.#socket?.ref();
    }
    this.#socket?.unref();
  }

  /** Asks the library for one taker after another, until it has no more; a ring meanwhile makes it ask once more. */
  async #ring() {
    this.#rung = true;
    if (this.#asking) return;
    while (this.#rung && this.#takers.size > 0) {
      const [taker] = this.#takers;
      this.#asking = taker;
      this.#rung = false;
      try {
        const { wakes } = await call('aware_wait_wakes', this.#handle, { timeoutMs: 0, max: taker.max });
        if (wakes.length > 0 || taker.cancelled) this.#answer(taker, wakes);
        else this.#listen();
      } catch (error) {
        this.#takers.delete(taker);
        this.#hold();
        taker.reject(error);
      }
      // Where one was served there may be more for the next.
      if (!this.#takers.has(taker)) this.#rung = true;
      this.#asking = undefined;
    }
  }

  #listen() {
    if (this.#socket || this.#ended) return;
    const fd = wakeFd(this.#handle);
    // A reader has none: it is offered no wakes.
    if (fd < 0) return;
    this.#socket = new Socket({ fd: duplicate(fd), readable: true, writable: false })
      .on('data', () => this.#ring())
      .on('error', (error) => this.#end(error));
    this.#hold();
  }

  #end(error) {
    this.#ended ??= error;
    this.#socket?.destroy();
    for (const taker of this.#takers) taker.reject(this.#ended);
    this.#takers.clear();
  }
}

/** The async iterator behind `wakes()`. */
export class WakeIterator {
  #take;
  #signal;
  #onAbort = () => this.return();
  #takers = new Set();
  #done = false;

  constructor(take, signal) {
    this.#take = take;
    this.#signal = signal;
    if (signal?.aborted) this.return();
    else signal?.addEventListener('abort', this.#onAbort);
  }

  async next() {
    if (!this.#done) {
      const taker = this.#take(1);
      this.#takers.add(taker);
      try {
        const [value] = await taker.wakes;
        if (value) return { done: false, value };
      } catch (error) {
        this.return();
        if (!(error instanceof ClosedError)) throw error;
      } finally {
        this.#takers.delete(taker);
      }
    }
    return this.return();
  }

  async return() {
    this.#done = true;
    this.#signal?.removeEventListener('abort', this.#onAbort);
    for (const taker of this.#takers) taker.cancel();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  async [Symbol.asyncDispose]() {
    await this.return();
  }
}
