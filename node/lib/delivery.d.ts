import type { Text } from './types.js'

/** AMQP's basic properties without the headers, named as Node's clients name them. */
export interface Properties {
  contentType?: Text | undefined
  contentEncoding?: Text | undefined
  deliveryMode?: number | undefined
  priority?: number | undefined
  correlationId?: Text | undefined
  replyTo?: Text | undefined
  /** Milliseconds, as decimal digits. */
  expiration?: Text | number | undefined
  messageId?: Text | undefined
  /** Seconds since the epoch. */
  timestamp?: number | bigint | Date | undefined
  type?: Text | undefined
  userId?: Text | undefined
  appId?: Text | undefined
  clusterId?: Text | undefined
}

/** AMQP's types of header values. */
export type HeaderType =
  | 'boolean' | 'int8' | 'uint8' | 'int16' | 'uint16' | 'int32' | 'uint32' | 'int64' | 'uint64' | 'float' | 'double'
  | 'decimal' | 'string' | 'bytes' | 'timestamp' | 'void' | 'array' | 'table'

/**
 * A header's value with its AMQP type, in amqplib's notation: `{ "!": "int8", value: 3 }`.
 *
 * The value of a decimal is `{ places, digits }`, of a timestamp seconds since the epoch. The value
 * of a table is an object, a Map, or pairs of name and value.
 */
export interface Tagged {
  '!': string
  value: unknown
}

/**
 * Headers: an object, a Map, or pairs of name and value.
 *
 *     JavaScript           AMQP
 *     string               string
 *     Buffer               bytes
 *     boolean              boolean
 *     number, bigint       int64, or double if it has a fraction
 *     Date                 timestamp
 *     null                 void
 *     object, Map          table
 *     array                array
 *     { "!", value }       the type that it names
 *     undefined            the header is left out
 */
export type Headers =
  | { readonly [name: string]: unknown } | ReadonlyMap<Text, unknown>
  | ReadonlyArray<readonly [Text, unknown]>

/** The parts of a client's message. */
export interface DeliveryOptions {
  /** The exchange of basic.deliver. */
  exchange?: Text
  /** The routing key of basic.deliver. */
  routingKey?: Text
  /**
   * `message.properties` of amqplib, or an object of the same shape. undefined and null count as
   * absent.
   */
  properties?: (Properties & { headers?: Headers | null | undefined }) | { readonly [name: string]: any }
  /** Default: `properties.headers`. */
  headers?: Headers | null | undefined
}

/** One arrival of a message: exchange, routing key, properties, headers. It never changes. */
export class Delivery {
  /**
   * @throws {@link ArgumentError} if a name or a property has more than 255 bytes, or if AMQP has
   *   no type for a value
   */
  constructor (options?: DeliveryOptions)
  /**
   * The exchange of basic.deliver. For a retry it is the exchange that brought the message back.
   */
  readonly exchange: Text
  readonly routingKey: Text
  /** The basic properties that the message has; timestamp in seconds since the epoch. */
  readonly properties: { [name in keyof Properties]?: Text | number | bigint }
  /** Returns a property, or undefined if the message does not have it. */
  property (name: keyof Properties): Text | number | bigint | undefined
  /** False if the message has no header table. */
  readonly hasHeaders: boolean
  /**
   * All headers in amqplib's shape, as a new object for each access. Timestamps and decimals are
   * tagged, void is null.
   *
   * If several headers have one name, the first one counts. A name that is not UTF-8 is read as
   * Latin-1.
   */
  readonly headers: { [name: string]: unknown }
  /** Returns the AMQP type of a header, or undefined if there is no such header. */
  headerType (name: Text): HeaderType | undefined
  /**
   * Returns a header that is a string, bytes, a boolean, an integer or a timestamp; undefined for
   * any other.
   */
  header (name: Text): Text | number | bigint | boolean | undefined
  /** True if headers are missing because they exceeded a limit: 32 levels, 65,536 values, 1 MiB. */
  readonly isTruncated: boolean
  /** Size of properties and headers on the wire, in bytes. */
  readonly headerBytes: number
}
