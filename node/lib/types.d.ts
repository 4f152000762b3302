import type { Throttled } from './outcomes.js'

/**
 * A time span: milliseconds, or a string of numbers with units: `"250ms"`, `"30s"`, `"1.5h"`,
 * `"5m"`, `"1d"`, `"4 min 30 s"`.
 */
export type Duration = number | string

/** A text of a message: a string, or a Buffer if its bytes are not UTF-8. */
export type Text = string | Buffer

/** A class of errors, for `never` and `only`. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type ErrorClass = abstract new (...args: any[]) => unknown

/**
 * Decides about a value that a handler threw. Returns true, false, a delay, or a Throttled. After
 * a delay the next attempt starts at the earliest.
 *
 * If the predicate throws or returns another value, the message is retried, and the process gets a
 * warning.
 */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type ErrorPredicate = (error: any) => boolean | Duration | Throttled | null | undefined

/** Selects errors: a class, a predicate, or several of these. */
export type Errors = ErrorClass | ErrorPredicate | Iterable<ErrorClass | ErrorPredicate>
