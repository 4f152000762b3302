# frozen_string_literal: true

module Backhop
  # The base class of Backhop's errors. Each status of the core has a subclass.
  class Error < StandardError
    class << self
      # @return [String] the core's name of the status, for example "BH_ERR_POLICY"; "" if the class
      #   has no status
      def code = @code || ""

      # @return [Integer] the core's number of the status, below 0; 0 if the class has no status
      def status = @status || 0

      private

      def stands_for(code, status)
        @code = code
        @status = status
      end
    end

    # @return [String] the core's name of the status, for example "BH_ERR_POLICY"; "" if the class
    #   has no status
    def code = self.class.code

    # @return [Integer] the core's number of the status, below 0; 0 if the class has no status
    def status = self.class.status
  end

  # Memory could not be allocated. Nothing was changed.
  class OutOfMemoryError < Error; end

  # An argument is missing or outside its range.
  class InvalidArgumentError < Error; end

  # A method was called at the wrong time: before the start, after the stop, or twice.
  class StateError < Error; end

  # The policy is invalid. The text names the field and a remedy.
  class PolicyError < Error; end

  # A name is empty, too long (work queues: 247 bytes), not UTF-8, or begins with "amq.".
  class InvalidNameError < Error; end

  # The strategy cannot serve the policy. The text names a strategy that can.
  class StrategyError < Error; end

  # The broker cannot serve the strategy. The text names a strategy that it can serve.
  class BrokerError < Error; end

  # The headers of the message do not fit the connection's frame_max. Publish over a connection with
  # a larger one.
  class FrameError < Error; end

  # The URI is not of the form amqp[s]://user:password@host:port/vhost?heartbeat=seconds.
  class URIError < Error; end

  # This Backhop was built without librabbitmq. Worker needs librabbitmq; Bunny and Kicks do not.
  class NoLibrabbitmqError < Error; end

  # The broker could not be reached, or the connection was lost.
  class ConnectionFailedError < Error; end

  # TLS failed. Check the CA file, the host name of the certificate and the port.
  class TLSError < Error; end

  # The broker refused the user, the password, the vhost or a permission.
  class AccessError < Error; end

  # An exchange or queue exists with other arguments. The text names a remedy.
  class ClashError < Error; end

  # An exchange or queue does not exist. The text names it.
  class MissingError < Error; end

  # A copy was returned, nacked or not confirmed in time. The original stays unacknowledged.
  class PublishError < Error; end

  # The broker cancelled the consumer, for example because its queue was deleted.
  class ConsumerCancelledError < Error; end

  # A handler ran for longer than its time limit, the option timeout.
  class TimeoutError < Error; end

  # The time limit passed.
  class WaitTimeoutError < Error; end

  # The broker closed the channel. The text has the reply code and the reply text.
  class ChannelClosedError < Error; end

  # The process forked after the worker or the retrier was made. Make a new one in the child
  # process; a retrier needs a new connection too.
  class ForkedError < Error; end

  # The properties of the message are malformed. The message stays unacknowledged: move or delete it
  # yourself.
  class ContentError < Error; end

  # The topology has no rung for a delay of this policy. Give the policy to Topology.new as `policy`
  # or in `policies`.
  class ForeignPolicyError < Error; end
end
