'use strict'
// What callers give: options by name, and names for the core's numbers.

/** The options, where each is known: a misspelt one would be a default without a word. */
function only (options, known, what) {
  for (const name of Object.keys(options)) {
    if (!known.includes(name)) throw new TypeError(`${what} has no option ${name}: give any of ${known.join(', ')}`)
  }
  return options
}

/** The core's number for a name. */
function numberOf (names, name, what) {
  if (Object.hasOwn(names, name)) return names[name]
  throw new TypeError(`${what} is ${String(name)}: give one of ${Object.keys(names).join(', ')}`)
}

/** Names by the core's numbers. */
function namesOf (numbers) {
  return new Map(Object.entries(numbers).map(([name, number]) => [number, name]))
}

module.exports = { namesOf, numberOf, only }
