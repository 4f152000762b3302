'use strict'
// Calls on amqplib's channels that work with its promise API and its callback API.

const { ArgumentError } = require('../../errors')

const USED = ['_rpc', 'sendMessage', 'open'] // private methods of a channel that Backhop calls
const REPLY = /^.*? with message "(.*)"$/s

/** Calls a method of a channel of either API. Returns a promise of its result. */
function call (channel, method, ...args) {
  return new Promise((resolve, reject) => {
    const result = channel[method](...args, (error, value) => error ? reject(error) : resolve(value))
    if (typeof result?.then === 'function') result.then(resolve, reject)
  })
}

/**
 * Returns whether a channel is open. amqplib removes a closed channel from its connection's list.
 */
function isOpen (channel) {
  return channel.connection.channels[channel.ch]?.channel === channel
}

/** Closes a channel. Does nothing if the channel is closed already. */
async function close (channel) {
  try {
    if (isOpen(channel)) await call(channel, 'close')
  } catch {
    // The channel was closed in the meantime.
  }
}

/** Returns the broker's reply text of an error that closed a channel or a connection. */
function replyOf (error) {
  return REPLY.exec(error.message)?.[1] ?? error.message
}

/**
 * Checks that `channel` is a channel of a supported amqplib.
 *
 * Throws an ArgumentError if it is anything else; the text says what to give.
 */
function checkChannel (channel) {
  const connection = channel?.connection
  const isConnection = typeof channel?.createChannel === 'function' // it has a .connection too
  if (isConnection || typeof connection?.freshChannel !== 'function') throw new ArgumentError(noChannel(channel))
  if (!USED.every(name => typeof channel[name] === 'function') || !Array.isArray(connection.channels)) {
    throw new ArgumentError(
      'this amqplib is none that Backhop knows: it works with 0.10 up to 2, by more than its public calls'
    )
  }
}

function noChannel (given) {
  if (given === null || given === undefined) {
    return 'the retrier has no channel: give one of amqplib\'s, to the retrier, or to declare, wrap or read'
  }
  if (typeof given.addSetup === 'function') {
    return 'this is a ChannelWrapper of amqp-connection-manager, whose channel changes with each connection: make ' +
      'the retrier inside of addSetup(channel => ...), with that channel'
  }
  if (typeof given.createChannel === 'function') {
    return 'this is a connection of amqplib: give a channel, which its createChannel makes'
  }
  return 'this is no channel of amqplib: give the result of createChannel or createConfirmChannel'
}

module.exports = { call, checkChannel, close, isOpen, replyOf }
