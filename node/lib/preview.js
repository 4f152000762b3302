'use strict'
// Preview: the delays after each failure, as rows that print as a table.

const { inspect } = require('node:util')

const { whole } = require('./checks')
const { range } = require('./native')
const { duration } = require('./times')

const ROWS = 20 // by default
const MOST_ROWS = 10_000

class Preview extends Array {
  static get [Symbol.species] () {
    return Array
  }

  toString () {
    const cells = [['failure', 'lowest', 'mean', 'highest', 'total', 'rungs']]
    for (const { attempt, lowest, mean, highest, total, rungs } of this) {
      const durations = [lowest, mean, highest, total].map(duration)
      cells.push([String(attempt), ...durations, String(rungs || '-')])
    }
    const widths = cells[0].map((_, column) => Math.max(...cells.map(row => row[column].length)))
    const lineOf = row => row.map((cell, column) => cell.padStart(widths[column])).join('  ')
    return cells.map(lineOf).join('\n')
  }

  [inspect.custom] () {
    return this.toString()
  }
}

/** Returns a Preview of `failures` rows, which `rowOf` makes of the number of the attempt. */
function previewOf (failures, rowOf) {
  return Preview.from(range(whole(failures, 'failures', 0, MOST_ROWS)), i => rowOf(i + 1))
}

/** Returns how many rows a preview has by default: one per retry, and at most 20. */
function rowCount ({ maxAttempts }) {
  return maxAttempts ? Math.max(0, Math.min(ROWS, maxAttempts - 1)) : ROWS
}

/** Returns the row of an attempt: the policy's delays as a topology of the core rounds them. */
function topologyRow (topology, policy, attempt) {
  whole(attempt, 'attempt', 1)
  const [lowest, mean, highest, total, rungs] = topology.preview(policy, attempt)
  return { attempt, lowest, mean, highest, total, rungs }
}

module.exports = { previewOf, rowCount, topologyRow }
