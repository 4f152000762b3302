'use strict'
// Rehearses each error that a handler can throw: no broker is needed, and nothing waits.

const { Drop, Park, Policy, RetryAfter, Throttled, Worker } = require('backhop')
const { rehearse } = require('backhop/testing')

class RateLimitedError extends Error {}

let answers = []

/** Resolves to the status, and the header Retry-After. */
async function callApi () {
  return answers.shift() ?? [202, null]
}

// outcomes: begin
async function handle (message) {
  const [status, retryAfter] = await callApi(message.body)
  if (status === 429) throw new Throttled(retryAfter, '429') // the API is busy: waits, and is no attempt
  if (status === 503) throw new RetryAfter(retryAfter) // '120', a date or null; waits that long at least
  if (status === 404) throw new Park('no such page') // no attempt can succeed: parked now
  if (status === 410) throw new Drop() // not needed any more: acknowledged, no copy
  if (status >= 400) throw new Error(`HTTP ${status}`) // retried, as the policy has it
}
// outcomes: end

// choices: begin
const slow = new Policy({ initial: '10m', max: '1h', maxAttempts: 20 })

const worker = new Worker('amqp://localhost', {
  queue: 'cdn-purge',
  policy: new Policy(),
  never: [SyntaxError, error => error.status === 404], // parks at once
  only: [RateLimitedError, error => error.status >= 500], // any other error parks at once
  policies: [[RateLimitedError, slow]] // another policy; one count of attempts for both
})
// choices: end

async function main () {
  console.log(worker.topology.queue)
  for (const answer of [[429, '30'], [503, '120'], [404], [410], [500]]) {
    answers = [answer]
    const rehearsal = await rehearse(handle, '/index.html')
    console.log(`${answer[0]}: ${rehearsal.outcome} after ${rehearsal.length}`)
  }
}

main()
