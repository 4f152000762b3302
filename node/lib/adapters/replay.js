'use strict'
// Replaying: moves parked messages back to their work queue, and then its messages in the
// namespace's
//   unroutable queue.

const c = require('../core')
const { BackhopError } = require('../errors')
const { NATIVE } = require('../native')

const { BH_REPLAY_MOST_SHARED: MOST_SHARED } = c

/**
 * Replays up to `most` messages. Never rejects: resolves to `{ count, error }`.
 *
 *   connect()                    resolves to the connection
 *   read(got, connection)        makes a message of what a declaring channel got
 *   publish(message, connection) resolves when the copy is confirmed
 *   diagnosis(refusal, given)    see Declaring.diagnosis
 */
async function replay ({ most, topology, connect, read, publish, diagnosis }) {
  const done = { count: 0, foreign: 0, error: undefined }
  const run = { most, read, publish, diagnosis, done }
  try {
    const connection = await connect()
    await replayFrom(connection, topology.parkedQueue, run)
    await replayUnroutable(connection, topology, run)
  } catch (error) {
    done.error = error
  }
  return done
}

/**
 * Replays messages of the work queue from the unroutable queue alone. Takes what `replay` takes;
 * resolves to `{ count, foreign, error }`, with the number of messages of other work queues, which
 * stay.
 */
async function replayOwnUnroutable ({ topology, connect, read, publish, diagnosis }) {
  const done = { count: 0, foreign: 0, error: undefined }
  try {
    await replayUnroutable(await connect(), topology, { most: MOST_SHARED, read, publish, diagnosis, done })
  } catch (error) {
    done.error = error
  }
  return done
}

/**
 * Replays messages of the work queue from the unroutable queue, which all work queues share. Does
 * nothing if the queue does not exist, or if the user may not read it.
 */
async function replayUnroutable (connection, topology, run) {
  const queue = topology._unroutableQueue
  if (!queue) return
  try {
    await replayFrom(connection, queue, run, message => isOwn(topology, message))
  } catch (error) {
    if (!(error instanceof BackhopError && c.bh_replay_goes_on(error.status, 1))) throw error
  }
}

/**
 * Replays the messages that are in a queue at the start. Messages that are parked in the meantime
 * stay: otherwise a message that always fails would be replayed without end.
 *
 * A message that is not replayed stays unacknowledged until the channel closes.
 */
async function replayFrom (connection, queue, run, isChosen = undefined) {
  const { most, done } = run
  if (done.count >= most) return
  const channel = await connection.openChannel()
  try {
    let limit = Infinity
    for (let seen = 0; done.count < most && seen < limit; seen++) {
      const got = await channel.get(queue)
      if (!got) return
      if (got.refusal) throw run.diagnosis('replay', { ...got.refusal, of: queue })
      // Not by a passive declare, which reports 0 messages for a busy quorum queue.
      if (seen === 0) limit = c.bh_replay_limit(got.remaining, Number(isChosen !== undefined))
      const message = run.read(got, connection)
      if (!isChosen || isChosen(message)) await replayOne(connection, message, run)
      else done.foreign++
    }
  } finally {
    await channel.close()
  }
}

/**
 * Replays a message. If it is refused because of its content, keeps the error and goes on with the
 * next.
 */
async function replayOne (connection, message, { publish, done }) {
  try {
    await publish(message, connection)
    done.count++
  } catch (error) {
    if (!(error instanceof BackhopError && c.bh_replay_goes_on(error.status, 0))) throw error
    done.error ??= error
  }
}

/** Returns whether a message belongs to the topology's work queue; false if it cannot be read. */
function isOwn (topology, message) {
  try {
    return Boolean(topology[NATIVE].owns(message.delivery[NATIVE]))
  } catch {
    return false
  }
}

module.exports = { replay, replayOwnUnroutable }
