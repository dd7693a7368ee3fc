/** How often a server that has ended may be started again before the user is asked. */

const MOST = 3;
const MILLISECONDS = 3 * 60 * 1000;

export class Restarts {
  private ends: number[] = [];

  /** The server has ended; true where it may start again. */
  allows(now: number): boolean {
    this.ends = [...this.ends.filter((end) => now - end < MILLISECONDS), now];
    return this.ends.length <= MOST;
  }
}
