import { Policy, Worker } from 'backhop'
import { Retrier as NodeAmqpRetrier } from 'backhop/amqp'
import { Retrier } from 'backhop/amqplib'
import { rehearse } from 'backhop/testing'

// @ts-expect-error -- there is no default export: import by name
import backhop from 'backhop'

export const worker: Worker =
  new Worker('amqp://localhost', { queue: 'orders', policy: new Policy({ steps: [1000, '1m'] }) })
export const rehearsal = rehearse(() => undefined)
export const retrier = new Retrier(null, { queue: 'orders' })
export { NodeAmqpRetrier, backhop }
