# frozen_string_literal: true

require "English"

module Backhop
  # Retries for workers of Kicks and Sneakers.
  module Kicks
    # The worker answered reject!. The message is retried.
    class RejectedError < Error; end

    # The worker answered :error without raising. The message is retried.
    class WorkError < Error; end

    # The worker took longer than Sneakers allows. The message is retried.
    class JobTimeoutError < Error; end

    # A handler class for workers of Kicks 3 and Sneakers 2. It needs no other configuration and no
    # x-dead-letter-* arguments.
    #
    #     require "backhop/kicks"
    #
    #     class Purger
    #       include Sneakers::Worker
    #       from_queue "cdn-purge", handler: Backhop::Kicks::Handler, backhop: {
    #         policy: Backhop::Policy.new(max_attempts: 8), never: [NoSuchSite]
    #       }
    #
    #       def work(payload)
    #         purge(payload)
    #         ack!
    #       end
    #     end
    #
    # | the worker's work       | result                                                         |
    # |-------------------------|----------------------------------------------------------------|
    # | answers ack!            | the message is acknowledged                                    |
    # | raises, reject!, :error | the message is retried or parked, by RetryAfter, Park and Drop |
    # | exits, is interrupted   | the main thread gets the exception, the message returns later  |
    # | answers requeue!        | the message returns to its queue now; no attempt is counted    |
    # | answers anything else   | nothing: the worker settles the message itself                 |
    #
    # The option backhop: is a Hash of the options of {Bunny::Retrier#initialize}, without the
    # queue. A worker with work_with_params(payload, delivery_info, metadata) finds the
    # {Bunny::Message} in delivery_info[:backhop].
    #
    # Kicks' error reporters get what the worker raises. If this version of Kicks has middlewares,
    # they do not get RetryAfter, Park and Drop.
    #
    # With a breaker, messages are held while it is not closed, and wait without an attempt if it
    # stays open. The consumer is Kicks', so it is not cancelled.
    #
    # The poison guard delays or parks a message before the worker gets it. A delivery from before a
    # reconnect is never settled on the new connection. If the process ends, messages with
    # unconfirmed copies are delivered again.
    class Handler
      TOPOLOGY = %i[policy strategy queue_type namespace series stripes work_queue work_queue_arguments].freeze
      THREADS = 10 # of Kicks by default
      private_constant :TOPOLOGY, :THREADS

      class << self
        # Returns the work queue's options for Kicks 3, with the arguments that the strategy needs.
        # Sneakers 2 does not call it: give these arguments to your queue yourself.
        #
        # @return [Hash] queue_options
        def configure_queue(name, options)
          queue_options = options[:queue_options] || {}
          declared = declared_arguments(name, options.fetch(:backhop, {}))
          return queue_options unless declared

          arguments = (queue_options[:arguments] || {}).transform_keys(&:to_s).merge(declared)
          queue_options.merge(durable: true, arguments: arguments)
        end

        # Returns the arguments of the work queue if Backhop declares it, else nil.
        # @api private
        def declared_arguments(name, given)
          (given[:topology] || Topology.new(name, **given.slice(*TOPOLOGY).compact))
            .declarations.find { |each| each.what == :queue && each.name == name }&.arguments
        end
      end

      # @return [Bunny::Retrier]
      attr_reader :retrier

      # @param channel [::Bunny::Channel] the worker's channel
      # @param queue [::Bunny::Queue] the worker's queue
      # @param options [Hash] the worker's options
      def initialize(channel, queue, options)
        given = Checks.object(options.fetch(:backhop, {}), "backhop", Hash)
        named = given[:topology] ? given : { queue: queue, **given, **arguments(queue, given) }
        @retrier = Bunny::Retrier.new(channel, **named).declare
        queue.extend(Arrivals).backhop_intake = Intake.new(@retrier, options.fetch(:threads, THREADS))
        Middleware.install
      end

      # Acknowledges a message.
      def acknowledge(delivery_info, _metadata, _payload)
        settle(delivery_info)
      end

      # Retries or parks a message that the worker rejected.
      #
      # @param requeue [Boolean] true returns the message unchanged to its queue now
      def reject(delivery_info, _metadata, _payload, requeue = false) # rubocop:disable Style/OptionalBooleanParameter
        return @retrier.give_back(message(delivery_info)) if requeue

        settle(delivery_info, RejectedError.new("the worker rejected it"))
      end

      # Retries or parks a message because the worker raised or answered :error.
      def error(delivery_info, _metadata, _payload, error)
        settle(delivery_info, error || message(delivery_info).raised || WorkError.new("the worker gave :error"))
      end

      # Retries or parks a message because the worker took too long (Sneakers 2.7 and older).
      def timeout(delivery_info, _metadata, _payload)
        settle(delivery_info, JobTimeoutError.new("the worker took too long"))
      end

      # Does nothing, since the worker settles the message itself. But Kicks also calls this while
      # some exceptions of the worker propagate:
      #
      # - After a Bunny::Exception the message is retried or parked.
      # - SystemExit and SignalException would only end a thread of Kicks' pool. They are raised in
      #   the main thread, and the message stays unacknowledged.
      def noop(delivery_info, _metadata, _payload)
        case (error = $ERROR_INFO)
        when ::Bunny::Exception then settle(delivery_info, error)
        when *HandlerCall::ENDS_PROGRAM
          @retrier.emit_end(message(delivery_info), error)
          HandlerCall.raise_in_main(error)
        else @retrier.forget_call(message(delivery_info))
        end
      end

      # Yields. Kicks calls it around the worker's work.
      def around_action(*)
        yield
      end

      private

      # Returns the worker's own queue arguments, if Backhop declares the queue too.
      def arguments(queue, given)
        declared = self.class.declared_arguments(queue.name, given)
        return {} unless declared

        own = (queue.arguments || {}).transform_keys(&:to_s).except(*declared.keys)
        { work_queue_arguments: (given[:work_queue_arguments] || {}).merge(own) }
      end

      def message(delivery_info) = delivery_info[:backhop]

      def settle(delivery_info, error = nil)
        @retrier.settle(message(delivery_info), error)
      end
    end
  end
end
