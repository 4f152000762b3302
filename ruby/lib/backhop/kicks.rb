# frozen_string_literal: true

require "English"

require_relative "bunny"

module Backhop
  # Retries for workers of Kicks and Sneakers.
  module Kicks
    # Why a message comes back: the worker said reject!.
    class RejectedError < Error; end

    # Why a message comes back: the worker gave :error, and raised nothing.
    class WorkError < Error; end

    # Why a message comes back: the worker took longer than Sneakers allows.
    class JobTimeoutError < Error; end

    # A handler class for workers of Kicks 3 and Sneakers 2; nothing else is to be configured, and no x-dead-letter-*
    # argument is needed.
    #
    #     require "backhop/kicks"
    #
    #     class Purger
    #       include Sneakers::Worker
    #       from_queue "cdn-purge", handler: Backhop::Kicks::Handler,
    #                               backhop: { policy: Backhop::Policy.new(max_attempts: 8), never: [NoSuchSite] }
    #
    #       def work(payload)
    #         purge(payload)
    #         ack!
    #       end
    #     end
    #
    # | the worker's work                 | then                                                                       |
    # |-----------------------------------|----------------------------------------------------------------------------|
    # | gives ack!                        | the message is acknowledged                                                |
    # | raises, gives reject! or :error   | it comes back later, or is parked; RetryAfter, Park and Drop as everywhere |
    # | gives requeue!                    | it goes back to its queue now; no attempt is counted                       |
    # | gives anything else               | nothing: Kicks' way to settle it by oneself                                |
    #
    # The option backhop: is a Hash of what {Bunny::Retrier#initialize} takes, but for the queue. A worker with
    # work_with_params(payload, delivery_info, metadata) finds the {Bunny::Message} as delivery_info[:backhop].
    #
    # What the worker raises goes to Kicks' error reporters as ever, but for RetryAfter, Park and Drop, which are no errors: a
    # middleware, the innermost, takes them out where Kicks has middlewares.
    #
    # A message whose consumers were lost too often waits, or is parked, before the worker sees it. A delivery of before a
    # reconnect is never settled on the new connection, whichever thread ends late. Where the process ends, what is unconfirmed
    # then is delivered again.
    class Handler
      TOPOLOGY = %i[policy strategy queue_type namespace series stripes work_queue work_queue_arguments].freeze
      private_constant :TOPOLOGY

      class << self
        # The arguments of the work queue, as Kicks is to declare it: with those that the strategy lives in, if it does.
        # Kicks 3 asks for it; with Sneakers 2, which does not, give such arguments yourself.
        #
        # @return [Hash] its queue_options
        def configure_queue(name, options)
          queue_options = options[:queue_options] || {}
          declared = declared_arguments(name, options.fetch(:backhop, {}))
          return queue_options unless declared

          arguments = (queue_options[:arguments] || {}).transform_keys(&:to_s).merge(declared)
          queue_options.merge(durable: true, arguments: arguments)
        end

        # Those of the work queue where Backhop declares it; nil where it does not.
        # @api private
        def declared_arguments(name, given)
          (given[:topology] || Topology.new(name, **given.slice(*TOPOLOGY).compact))
            .declarations.find { |each| each.what == :queue && each.name == name }&.arguments
        end
      end

      # @return [Bunny::Retrier]
      attr_reader :retrier

      # @param channel [::Bunny::Channel] the worker's
      # @param queue [::Bunny::Queue] the worker's; its messages are seen here before the worker sees them
      # @param options [Hash] the worker's options
      def initialize(channel, queue, options)
        given = Values.object(options.fetch(:backhop, {}), "backhop", Hash)
        named = given[:topology] ? given : { queue: queue, **given, **arguments(queue, given) }
        @retrier = Bunny::Retrier.new(channel, **named).declare
        queue.extend(Arrivals).backhop_retrier = @retrier
        Middleware.install
      end

      # The worker is done with a message.
      def acknowledge(delivery_info, _metadata, _payload)
        settle(delivery_info)
      end

      # The worker rejects a message; requeue: as it is, and now.
      def reject(delivery_info, _metadata, _payload, requeue = false) # rubocop:disable Style/OptionalBooleanParameter
        return @retrier.give_back(message(delivery_info)) if requeue

        settle(delivery_info, RejectedError.new("the worker rejected it"))
      end

      # The worker raised, or gave :error and raised nothing.
      def error(delivery_info, _metadata, _payload, error)
        settle(delivery_info, error || message(delivery_info).raised || WorkError.new("the worker gave :error"))
      end

      # The worker took too long (Sneakers 2.7 and older).
      def timeout(delivery_info, _metadata, _payload)
        settle(delivery_info, JobTimeoutError.new("the worker took too long"))
      end

      # The worker settles the message itself; or it raised what Kicks does not take for its error: a Bunny::Exception, which
      # is on its way still.
      def noop(delivery_info, _metadata, _payload)
        settle(delivery_info, $ERROR_INFO) if $ERROR_INFO.is_a?(::Bunny::Exception)
      end

      # Surrounds a worker's work.
      def around_action(*)
        yield
      end

      private

      # The arguments that the worker gives its queue itself, where the queue is declared here too.
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

    # Takes out of Kicks' hands what a worker raises that is no error.
    # @api private
    class Middleware
      # Makes it the innermost of Kicks' middlewares, where Kicks has them.
      def self.install
        return unless defined?(::Sneakers) && ::Sneakers.respond_to?(:middleware)

        ::Sneakers.middleware.delete(self)
        ::Sneakers.middleware.use(self, [])
      end

      def initialize(app)
        @app = app
      end

      def call(payload, delivery_info, metadata, handler)
        @app.call(payload, delivery_info, metadata, handler)
      rescue RetryAfter, Park, Drop => e
        raise unless handler.is_a?(Handler)

        delivery_info[:backhop].raised = e
        :error
      end
    end

    # A delivery_info that knows its message.
    # @api private
    module Known
      attr_writer :backhop

      def [](key) = key == :backhop ? @backhop : super
    end

    # Reads a message where it arrives: it is known here whether it is of before a reconnect, and whether it crashes its
    # consumers.
    # @api private
    module Arrivals
      attr_writer :backhop_retrier

      def subscribe(options = {}, &block)
        return super unless options[:manual_ack]

        retrier = @backhop_retrier
        super(options) do |delivery_info, metadata, payload|
          message = retrier.arrived(delivery_info, metadata, payload)
          next unless message

          delivery_info.extend(Known).backhop = message
          block.call(delivery_info, message.properties, payload)
        end
      end
    end
  end
end
