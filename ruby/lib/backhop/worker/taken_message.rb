# frozen_string_literal: true

module Backhop
  class Worker
    # A message that a worker took. The body and the headers are read at the first access.
    # @api private
    class TakenMessage < Message
      # @return [Native::Message]
      attr_reader :taken

      def initialize(worker, taken) # rubocop:disable Lint/MissingSuper
        @worker = worker
        @taken = taken
      end

      def topology = @worker.topology

      def body = @body ||= @taken.body

      def redelivered? = @taken.redelivered == 1

      def history = @history ||= @worker.read(@taken)
    end
    private_constant :TakenMessage
  end
end
