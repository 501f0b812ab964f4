// Asks the gateway again at times, for the views of what it sends no events about.

/** The time between two readings. */
const INTERVAL = 5_000;

/**
 * Calls `load` again and again until `left` aborts, one call at a time, while the page is visible. A call that fails is not
 * the last one: the gateway may be restarting.
 */
export function poll(left, load, interval = INTERVAL) {
  let isRunning = false;
  const timer = setInterval(async () => {
    if (document.hidden || isRunning) return;
    isRunning = true;
    await load().catch(() => {});
    isRunning = false;
  }, interval);
  left.addEventListener("abort", () => clearInterval(timer));
}
