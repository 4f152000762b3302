# frozen_string_literal: true

module Backhop
  module Kicks
    # Keeps RetryAfter, Park and Drop from Kicks' error reporters, and detects a worker that ends
    # its thread.
    # @api private
    class Middleware
      # Makes this the innermost middleware. Does nothing if this version of Kicks has no
      # middlewares.
      def self.install
        return unless defined?(::Sneakers) && ::Sneakers.respond_to?(:middleware)

        ::Sneakers.middleware.delete(self)
        ::Sneakers.middleware.use(self, [])
      end

      def initialize(app)
        @app = app
      end

      def call(payload, delivery_info, metadata, handler)
        message = delivery_info[:backhop]
        return @app.call(payload, delivery_info, metadata, handler) unless message # a worker without Backhop's handler

        answer = nil
        thread_ended = lambda do |error|
          handler.error(delivery_info, metadata, payload, error)
          true
        end
        error = HandlerCall.error_of(message, handler.retrier.listeners, thread_ended) do
          answer = @app.call(payload, delivery_info, metadata, handler)
          nil # a worker that answers a Thread settles the message itself
        end
        handler.retrier.listeners.log_severe(message, error)
        error ? report(message, error) : answer
      end

      private

      def report(message, error)
        raise error unless [RetryAfter, Park, Drop].any? { |each| FailureRules.of?(error, each) }

        message.raised = error
        :error
      end
    end
  end
end
