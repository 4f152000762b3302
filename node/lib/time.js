'use strict'
// Times: whole milliseconds, as in the core; durations also as strings, by the package ms.

const ms = require('ms')

const { refuse } = require('./options')

const MOST_MS = Number.MAX_SAFE_INTEGER
const UNITS = [[86_400_000, 'd'], [3_600_000, 'h'], [60_000, 'min'], [1000, 's']]

const LONGEST_TEXT = 100
const GIVE = 'milliseconds, or a string with its unit as "30s", "5m", "2h", "1d"'

/**
 * A duration in whole milliseconds, `least` or more; above `most` an error too, or, where that is not given, the most
 * that the core can hold. A text without a unit is none: nobody knows whether it means seconds.
 */
function milliseconds (value, name, { least = 0, most, give = GIVE } = {}) {
  const given = typeof value === 'string' ? durationIn(value) : value
  if (typeof given !== 'number' || Number.isNaN(given)) return refuse(name, value, give)
  const whole = Math.round(Math.max(-MOST_MS, Math.min(MOST_MS, given)))
  if (whole >= least && (most === undefined || whole <= most)) return whole
  return refuse(name, value, most === undefined ? `${least} ms or more` : `from ${least} ms to ${duration(most)}`)
}

function durationIn (text) {
  return text.length <= LONGEST_TEXT && /[a-z]\s*$/i.test(text) ? ms(text) : undefined
}

/** Milliseconds since the epoch as a Date; undefined for -1; no later than a Date can be. */
function moment (epochMs) {
  return epochMs < 0 ? undefined : new Date(Math.min(Number(epochMs), 8_640_000_000_000_000))
}

/** Milliseconds for people: `0.25 s`, `12 s`, `4 min 30 s`, `2 h`, `3 d 4 h`. */
function duration (value) {
  if (value < 60_000) return `${Number((value / 1000).toPrecision(3))} s`
  let left = Math.round(value / 1000) * 1000
  const parts = []
  for (const [size, unit] of UNITS) {
    const count = Math.floor(left / size)
    left -= count * size
    if (count) parts.push(`${count} ${unit}`)
  }
  return parts.slice(0, 2).join(' ')
}

module.exports = { duration, milliseconds, moment }
