import { Policy, Worker } from 'backhop'
import { rehearse } from 'backhop/testing'

export const worker: Worker = new Worker('amqp://localhost', { queue: 'orders', policy: new Policy({ steps: [1000, '1m'] }) })
export const rehearsal = rehearse(() => undefined)
