'use strict'
// A message's story, in words.

const { Delivery } = require('./delivery')
const { History } = require('./history')
const { duration } = require('./time')

const SOURCES = {
  legacy: ' (by the counter of an earlier set-up)',
  'x-death': " (by the broker's x-death records)",
  'delivery-count': " (by the queue's delivery count)"
}
const REASONS = {
  exhausted: 'its attempts were used up',
  permanent: 'its handler said that no attempt can succeed',
  'too-old': 'it was too old for another attempt',
  oversized: "its headers left no room for a retry's",
  poison: 'its consumer was lost too often while it, or a message beside it, was in hand'
}

function explain (headers, options) {
  return [...lines(new History(new Delivery({ headers: headers ?? {} }), options))].join('\n')
}

function * lines (history) {
  if (history.attempts) {
    const since = history.firstFailure ? `, first at ${at(history.firstFailure)}` : ''
    yield `It failed ${times(history.attempts)}${SOURCES[history.source] ?? ''}${since}.`
  } else {
    yield history.crashes ? 'No failure of it was reported.' : 'It never failed.'
  }
  if (history.lastError.length) yield `The last error was: ${history.lastError}`
  if (history.lastDelay !== undefined) yield `Its last wait was ${duration(history.lastDelay)}.`
  if (history.parked.length) yield `It was parked because ${REASONS[history.parked] ?? history.parked}.`
  if (history.exchange.length || history.routingKey.length) {
    yield `It was first published ${place(history.exchange, history.routingKey)}.`
  }
  if (history.id.length) yield `All its attempts have the id ${history.id}.`
  for (const death of history.deaths) {
    const first = death.time ? `, first at ${at(death.time)}` : ''
    yield `The broker dead-lettered it from queue ${death.queue} ${times(death.times)} (${death.reason})${first}.`
  }
  if (history.crashes) {
    const often = times(history.crashes)
    yield `Its consumer was lost, or gave it back, ${often} while it, or a message beside it, was in hand.`
  }
  if (history.replays) yield `It was sent back from the parked queue ${times(history.replays)}.`
  for (const problem of history.problems) yield `Ignored: ${problem}`
}

function times (count) {
  return count === 1 ? 'once' : `${count} times`
}

function at (moment) {
  return `${moment.toISOString().slice(0, 19).replace('T', ' ')} UTC`
}

function place (exchange, routingKey) {
  return exchange.length ? `to exchange '${exchange}' with routing key '${routingKey}'` : `to queue '${routingKey}'`
}

module.exports = { explain }
