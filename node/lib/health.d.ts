import type { Duration } from './types.js'

/**
 * The state of a worker or a consumer.
 *
 *     "starting"       it was not ready yet
 *     "ready"          it consumes
 *     "reconnecting"   it was ready, and tries to consume again
 *     "paused"         the broker blocks its connection: no copy can be published; or its breaker
 *                      is open or half-open
 *     "stopped"        it has stopped, or was not started
 */
export type HealthState = 'starting' | 'ready' | 'reconnecting' | 'paused' | 'stopped'

/** The state of a worker or a consumer, for a health endpoint. */
export interface Health {
  readonly state: HealthState
  /** The text of the event that led to the state; "" if there was none. */
  readonly stateReason: string
  /**
   * Resolves when the state is ready.
   *
   * @param options `timeout`: longest time to wait; default: no limit
   * @throws {@link WaitTimeoutError} if the time is over; the text has the state and its reason
   * @throws {@link StateError} if it has stopped, or was not started; or the error that stopped it,
   *   for a worker the one of {@link Worker.run}
   */
  ready (options?: { timeout?: Duration | undefined }): Promise<void>
}
