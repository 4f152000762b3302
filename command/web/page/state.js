// Figures of the state that all screens share.

export const isRunning = job => !job.ended_ms

export const workQueue = queue => queue.replace(/\.parked$/, '')

// Returns whether an action runs on the queue or on its parked queue.
export const isBusy = (state, queue) =>
  state.jobs.some(job => isRunning(job) && workQueue(job.queue) === workQueue(queue))

// Returns how many consumers a work queue has; null: not known.
export const consumersOf = (state, queue) =>
  queuesOf(state, 'work').find(each => each.queue === workQueue(queue))?.consumers ?? null

export const queuesOf = (state, kind) => (state.depths || []).filter(each => each.kind === kind)

// Returns the number of messages in all queues of a kind. A missing queue has none.
export const sumOf = (state, kind) =>
  queuesOf(state, kind).reduce((sum, each) => sum + Math.max(0, each.ready || 0), 0)
