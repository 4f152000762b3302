'use strict'
// Times: whole milliseconds, as in the core; durations also as strings with units, which the core
// reads.

const { performance } = require('node:perf_hooks') // the global one is looked up at each use

const { refuse } = require('./checks')
const c = require('./core')

const MOST_MS = Number.MAX_SAFE_INTEGER
const GIVE = 'milliseconds, or a string with its unit as "30s", "5m", "2h", "1d"'

/** Returns whole milliseconds of a clock that never goes back. */
const monotonicMs = () => Math.floor(performance.now())

/**
 * Returns a duration in whole milliseconds. A text needs a unit: without one, seconds and
 * milliseconds look the same.
 *
 * Rounds a fraction to the nearest millisecond, a negative one down, and one below 1 up: only 0
 * becomes 0, which can mean no limit.
 *
 * Throws an ArgumentError if it is below `least` or above `most`. Without `most`, a longer duration
 * becomes the longest one that the core can hold.
 */
function milliseconds (value, name, { least = 0, most, give = GIVE } = {}) {
  const given = typeof value === 'string' ? durationIn(value) : value
  if (typeof given !== 'number' || Number.isNaN(given)) return refuse(name, value, give)
  const bounded = Math.max(-MOST_MS, Math.min(MOST_MS, given))
  const whole = bounded < 0 ? Math.floor(bounded) : Math.round(bounded) || Math.ceil(bounded)
  if (whole >= least && (most === undefined || whole <= most)) return whole
  return refuse(name, value, most === undefined ? `${least} ms or more` : `from ${least} ms to ${duration(most)}`)
}

/** Returns whether a text is a duration with its unit. */
function isDuration (text) {
  return durationIn(text) !== undefined
}

function durationIn (text) {
  const span = Number(c.bh_duration_ms(text))
  return span < 0 ? undefined : span
}

/**
 * Returns milliseconds since the epoch as a Date, at most the latest possible Date; undefined for
 * -1.
 */
function moment (epochMs) {
  return epochMs < 0 ? undefined : new Date(Math.min(Number(epochMs), 8_640_000_000_000_000))
}

/** Returns milliseconds as text: `0.25 s`, `12 s`, `4 min 30 s`, `2 h`, `3 d 4 h`. */
function duration (value) {
  return String(c.bh_duration_text(Math.round(value)))
}

module.exports = { duration, isDuration, milliseconds, moment, monotonicMs }
