/** Base class of all errors of Backhop. */
export class BackhopError extends Error {
  /** The core's name of the error, like `"BH_ERR_POLICY"`. */
  readonly code: string
  /** The core's number of the error. */
  readonly status: number
}
/** Memory could not be allocated; nothing was changed. */
export class OutOfMemoryError extends BackhopError {}
/** An argument is missing or out of its range. */
export class ArgumentError extends BackhopError {}
/** A call at the wrong time: before the start, after the stop, or twice. */
export class StateError extends BackhopError {}
/** The policy cannot be used; the text names the field and the remedy. */
export class PolicyError extends BackhopError {}
/** A name is empty, too long (a work queue: 247 bytes), not UTF-8, or begins with `amq.`. */
export class InvalidNameError extends BackhopError {}
/** The strategy cannot serve this policy; the text names one that can. */
export class StrategyError extends BackhopError {}
/** The broker cannot serve this strategy; the text names one that it can. */
export class BrokerError extends BackhopError {}
/**
 * The message's own headers exceed the connection's frame_max; publish over a connection with a
 * larger one.
 */
export class FrameError extends BackhopError {}
/** The URI does not have the form `amqp[s]://user:password@host:port/vhost?heartbeat=seconds`. */
export class URIError extends BackhopError {}
/** This Backhop was built without librabbitmq, which the worker needs; the adapters do not. */
export class NoLibrabbitmqError extends BackhopError {}
/** The broker could not be reached, or the connection was lost. */
export class ConnectionFailedError extends BackhopError {}
/** TLS failed: check the CA file, the certificate's host name and the port. */
export class TLSError extends BackhopError {}
/** The broker refused the user, its password, the vhost or a permission. */
export class AccessError extends BackhopError {}
/** An exchange or queue exists with other arguments; the text has the remedy. */
export class ClashError extends BackhopError {}
/** An exchange or queue does not exist; the text names it. */
export class MissingError extends BackhopError {}
/** A publish was returned, nacked or not confirmed in time; the original stays unacknowledged. */
export class PublishError extends BackhopError {}
/**
 * The broker cancelled the consumer: its queue was deleted, or a message was held longer than the
 * consumer timeout.
 */
export class ConsumerCancelledError extends BackhopError {}
/** Nothing arrived in the given time. */
export class WaitTimeoutError extends BackhopError {}
/** The broker closed the channel; the text has its reply code and text. */
export class ChannelClosedError extends BackhopError {}
/** The process forked after this object was made: make a new one in the child. */
export class ForkedError extends BackhopError {}
/** The message's properties are malformed. It stays unacknowledged: move or remove it by hand. */
export class ContentError extends BackhopError {}
/**
 * The topology lacks a rung of this policy: make the topology with this policy among its
 * `policies`.
 */
export class ForeignPolicyError extends BackhopError {}
