'use strict'
// Calls of earlier deliveries of a message. The core decides which delivery needs no call of its
// handler. They are kept for the whole process, because a message may come back by another
// connection.

const { randomBytes } = require('node:crypto')

const c = require('../core')
const { made } = require('../errors')
const { ACTION_NUMBERS } = require('../plan')
const { monotonicMs: now } = require('../times')

const { BH_ARRIVAL_CALL: CALL, BH_ARRIVAL_WAIT: WAIT, BH_ARRIVAL_ACK: ACK, BH_CALLS_CLOSED: CLOSED } = c
const RANDOM_BYTES = 16
const NEW = Object.freeze([CALL, 0, ACTION_NUMBERS.none]) // of a delivery that is not looked up

const calls = made(c.bh_calls_new(randomBytes(RANDOM_BYTES)))
const channels = new WeakMap() // by original.channel: { number, original }
const open = new Set() // of these, until they are found closed
const waiting = new Map() // by the number of a call that runs: functions to call when it has ended

/** Reports the closed channels. */
function look () {
  for (const channel of open) {
    if (!channel.original.isOpen) leave(channel)
  }
}

function leave (channel) {
  const { number, original } = channel
  open.delete(channel)
  if (channels.get(original.channel) === channel) channels.delete(original.channel)
  calls.lose_channel(number, original.lostPrefetch, now())
}

/**
 * Returns the number of the channel that a delivery came by. An object of node-amqp outlives its
 * connection.
 */
function channelOf (original) {
  let channel = channels.get(original.channel)
  if (channel?.original.connection !== original.connection) {
    look()
    channel = { number: calls.open_channel(), original }
    channels.set(original.channel, channel)
    open.add(channel)
  }
  return channel.number
}

/**
 * Looks up the earlier calls of a delivery's message. Returns `[kind, call, action]`: CALL, WAIT
 * for this call, or ACK.
 *
 * history: the core's
 */
function arrive (original, history, queue, redelivered) {
  if (redelivered) look()
  const number = channelOf(original)
  const arrival = calls.arrive(number, history, queue, original.content, Number(redelivered), now())
  const [kind, call] = arrival
  original.call = kind === CALL ? call : 0
  return arrival
}

/** Calls `again` when a call has ended. */
function wait (call, again) {
  const others = waiting.get(call)
  if (others) others.push(again)
  else waiting.set(call, [again])
}

/** Records that the call of a delivery has ended, and how its message was settled. */
function end (original, action) {
  const { call } = original
  if (!call) return
  original.call = 0
  if (!original.isOpen) look()
  calls.end(call, ACTION_NUMBERS[action], now())
  const ended = waiting.get(call)
  if (!ended) return
  waiting.delete(call)
  for (const again of ended) again()
}

/**
 * Records that the broker has cancelled a consumer of a channel, and requeued its deliveries.
 *
 * key: original.channel
 * prefetch: of the channel; 0: unknown
 */
function cancelled (key, prefetch = 0) {
  const channel = channels.get(key)
  if (channel) calls.lose_channel(channel.number, prefetch, now())
}

module.exports = { ACK, CALL, CLOSED, NEW, WAIT, arrive, cancelled, end, wait }
