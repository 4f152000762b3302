# frozen_string_literal: true

module Backhop
  # What every error of Backhop is. Each of the core's codes has a class of its own.
  class Error < StandardError
    class << self
      # @return [String] the core's name for it, as "BH_ERR_POLICY"
      def code = @code || ""

      # @return [Integer] the core's number for it
      def status = @status || 0

      private

      def stands_for(code, status)
        @code = code
        @status = status
      end
    end

    # @return [String] the core's name for it, as "BH_ERR_POLICY"
    def code = self.class.code

    # @return [Integer] the core's number for it
    def status = self.class.status
  end

  # Memory could not be allocated; nothing was changed.
  class OutOfMemoryError < Error; end

  # An argument is missing or out of its range.
  class InvalidArgumentError < Error; end

  # Called at the wrong time: before starting, after stopping, or twice.
  class StateError < Error; end

  # The policy cannot be used; the text names the field and what to do.
  class PolicyError < Error; end

  # A name is empty, too long (a work queue's: 247 bytes), not UTF-8, or begins with "amq.".
  class InvalidNameError < Error; end

  # The strategy cannot serve this policy; the text names one that does.
  class StrategyError < Error; end

  # The broker cannot serve this strategy; the text names one that it can.
  class BrokerError < Error; end

  # The message's own headers do not fit the connection's frame_max; publish over a larger one.
  class FrameError < Error; end

  # The URI is not of the form amqp[s]://user:password@host:port/vhost?heartbeat=seconds.
  class URIError < Error; end

  # This Backhop was built without librabbitmq, which the worker needs; Bunny and Kicks do not.
  class NoLibrabbitmqError < Error; end

  # The broker could not be reached, or the connection was lost.
  class ConnectionFailedError < Error; end

  # TLS failed: check the CA file, the certificate's host name and the port.
  class TLSError < Error; end

  # The broker refused the user, its password, the vhost or a permission.
  class AccessError < Error; end

  # An exchange or queue exists with other arguments; the text tells the way out.
  class ClashError < Error; end

  # An exchange or queue does not exist; the text tells which.
  class MissingError < Error; end

  # A publish was returned, nacked or not confirmed in time; the original stays unacknowledged.
  class PublishError < Error; end

  # The broker cancelled the consumer, as it does when its queue is deleted.
  class ConsumerCancelledError < Error; end

  # Nothing arrived in the time given.
  class WaitTimeoutError < Error; end

  # The broker closed the channel; the text holds its reply code and text.
  class ChannelClosedError < Error; end

  # The process forked after the worker was made: make a new one in the child.
  class ForkedError < Error; end

  # The message's own properties are malformed: it stays unacknowledged; move or remove it by hand.
  class ContentError < Error; end

  # The topology lacks a wait of this policy: make it for the policy, or with it among its policies.
  class ForeignPolicyError < Error; end

  # The statuses of the core, and the one place that raises them.
  # @api private
  module Status
    CLASSES = {
      "BH_ERR_NO_MEMORY" => OutOfMemoryError,
      "BH_ERR_ARGUMENT" => InvalidArgumentError,
      "BH_ERR_STATE" => StateError,
      "BH_ERR_POLICY" => PolicyError,
      "BH_ERR_NAME" => InvalidNameError,
      "BH_ERR_STRATEGY" => StrategyError,
      "BH_ERR_BROKER" => BrokerError,
      "BH_ERR_FRAME" => FrameError,
      "BH_ERR_URI" => URIError,
      "BH_ERR_NO_LIBRABBITMQ" => NoLibrabbitmqError,
      "BH_ERR_CONNECTION" => ConnectionFailedError,
      "BH_ERR_TLS" => TLSError,
      "BH_ERR_ACCESS" => AccessError,
      "BH_ERR_CLASH" => ClashError,
      "BH_ERR_MISSING" => MissingError,
      "BH_ERR_PUBLISH" => PublishError,
      "BH_ERR_CANCELLED" => ConsumerCancelledError,
      "BH_ERR_TIMEOUT" => WaitTimeoutError,
      "BH_ERR_CHANNEL" => ChannelClosedError,
      "BH_ERR_FORKED" => ForkedError,
      "BH_ERR_CONTENT" => ContentError,
      "BH_ERR_FOREIGN_POLICY" => ForeignPolicyError
    }.freeze

    # Every failure of the core: its numbers go down from -1 until one has no name.
    CODES = (1..).lazy.map { |n| [-n, Native.bh_status_name(-n)] }.take_while { |_, name| !name.empty? }.to_h.freeze
    CODES.each { |status, code| CLASSES[code]&.send(:stands_for, code, status) }

    module_function

    # The exception for a failed status.
    #
    # @param detail [String] what there is to tell beyond the core's sentence
    # @param only [Class] the class that the detail is for
    def error(status, detail = "", only = Error)
      raised = CLASSES.fetch(CODES[status], Error)
      raised.new(!detail.empty? && raised <= only ? Times.sentence(detail) : Native.bh_status_text(status))
    end

    # Raises where the status is a failure.
    def check(status, detail = "", only = Error)
      raise error(status, detail, only) unless status.zero?
    end
  end
  private_constant :Status
end
