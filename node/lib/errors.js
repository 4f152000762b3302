'use strict'
// One error class for each status of the core, and the one place that makes them.

const c = require('./core')
const { BackhopError } = require('./backhop-error')

class OutOfMemoryError extends BackhopError {}
class ArgumentError extends BackhopError {}
class StateError extends BackhopError {}
class PolicyError extends BackhopError {}
class InvalidNameError extends BackhopError {}
class StrategyError extends BackhopError {}
class BrokerError extends BackhopError {}
class FrameError extends BackhopError {}
class URIError extends BackhopError {}
class NoLibrabbitmqError extends BackhopError {}
class ConnectionFailedError extends BackhopError {}
class TLSError extends BackhopError {}
class AccessError extends BackhopError {}
class ClashError extends BackhopError {}
class MissingError extends BackhopError {}
class PublishError extends BackhopError {}
class ConsumerCancelledError extends BackhopError {}
class WaitTimeoutError extends BackhopError {}
class ChannelClosedError extends BackhopError {}
class ForkedError extends BackhopError {}
class ContentError extends BackhopError {}
class ForeignPolicyError extends BackhopError {}

const CLASSES = {
  BH_ERR_NO_MEMORY: OutOfMemoryError,
  BH_ERR_ARGUMENT: ArgumentError,
  BH_ERR_STATE: StateError,
  BH_ERR_POLICY: PolicyError,
  BH_ERR_NAME: InvalidNameError,
  BH_ERR_STRATEGY: StrategyError,
  BH_ERR_BROKER: BrokerError,
  BH_ERR_FRAME: FrameError,
  BH_ERR_URI: URIError,
  BH_ERR_NO_LIBRABBITMQ: NoLibrabbitmqError,
  BH_ERR_CONNECTION: ConnectionFailedError,
  BH_ERR_TLS: TLSError,
  BH_ERR_ACCESS: AccessError,
  BH_ERR_CLASH: ClashError,
  BH_ERR_MISSING: MissingError,
  BH_ERR_PUBLISH: PublishError,
  BH_ERR_CANCELLED: ConsumerCancelledError,
  BH_ERR_TIMEOUT: WaitTimeoutError,
  BH_ERR_CHANNEL: ChannelClosedError,
  BH_ERR_FORKED: ForkedError,
  BH_ERR_CONTENT: ContentError,
  BH_ERR_FOREIGN_POLICY: ForeignPolicyError
}

for (const [code, Class] of Object.entries(CLASSES)) {
  Class.prototype.code = Class.code = code
}
for (let status = -1, name; (name = c.bh_status_name(status)); status--) {
  if (name in CLASSES) CLASSES[name].prototype.status = CLASSES[name].status = status
}

// Texts of the core have C's names of fields and functions. Users of the package know other names.
const FIELDS = /\b(initial|max|max_attempts|max_age|max_retry_after|max_crashes|max_deferrals)(_ms)?\b/g
const FUNCTIONS = [
  [/; bh_\w+ (names|tells)\b[^;]*/g, ''],
  [' that the function\'s comment gives', ''],
  [': close every table and array, build the topology, connect first', ''],
  ['by work_queue (quorum or classic)', 'by workQueue: "quorum"'],
  [/set this before bh_worker_start/g, 'set this before it is run']
]

/** Returns a text of the core with the names of this package. */
function inWords (sentence) {
  return inPhrases(sentence.replace(FIELDS, (_, name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase())))
}

/**
 * Returns a line about an event with the names of this package. Names of fields may be the user's
 * own text there.
 */
function inPhrases (line) {
  return FUNCTIONS.reduce((text, [of, by]) => text.replaceAll(of, by), line)
}

/**
 * Returns the error of a failed status.
 *
 * detail: a text that says more than the core's default
 * only: the class of errors that `detail` is for
 */
function errorOf (status, detail = '', only = BackhopError) {
  const Class = CLASSES[c.bh_status_name(status)] ?? BackhopError
  const isFor = Class === only || Class.prototype instanceof only
  return new Class(inWords(String(detail && isFor ? detail : c.bh_status_text(status))))
}

/** Throws the error of a status, unless it is 0. Further arguments as for errorOf. */
function check (status, detail, only) {
  if (status) throw errorOf(status, detail, only)
}

/**
 * Returns the object of `[status, object]`, or throws the error of the status. Garbage collection
 * frees the object.
 */
function made ([status, object], detail, only) {
  check(status, detail, only)
  return object
}

/** Returns a number of the core, or throws its error if it is a status, below 0. */
function counted (number) {
  if (number < 0) throw errorOf(number)
  return number
}

module.exports = {
  BackhopError,
  OutOfMemoryError,
  ArgumentError,
  StateError,
  PolicyError,
  InvalidNameError,
  StrategyError,
  BrokerError,
  FrameError,
  URIError,
  NoLibrabbitmqError,
  ConnectionFailedError,
  TLSError,
  AccessError,
  ClashError,
  MissingError,
  PublishError,
  ConsumerCancelledError,
  WaitTimeoutError,
  ChannelClosedError,
  ForkedError,
  ContentError,
  ForeignPolicyError,
  CLASSES,
  check,
  counted,
  errorOf,
  inPhrases,
  inWords,
  made
}
