# frozen_string_literal: true

module Backhop
  # Who is told of INT and TERM: every worker that runs, and whoever had the signal before.
  # @api private
  module Signals
    NAMES = %w[INT TERM].freeze

    @lock = Mutex.new
    @workers = [].freeze
    @before = {}

    class << self
      # Yields, and calls stop of the worker at a signal meanwhile: with nil at the first, with 0 at each one after it.
      def during(worker)
        add(worker)
        begin
          yield
        ensure
          remove(worker)
        end
      end

      private

      def add(worker)
        @lock.synchronize do
          NAMES.each { |name| @before[name] = trap(name) } if @workers.empty?
          @workers = [*@workers, [worker, Process.pid]].freeze
        end
      end

      def remove(worker)
        @lock.synchronize do
          @workers = @workers.reject { |each, _| each.equal?(worker) }.freeze
          NAMES.each { |name| restore(name) } if @workers.empty?
        end
      end

      def trap(name)
        asked = false
        Signal.trap(name) do |number|
          workers = @workers.select { |_, pid| pid == Process.pid } # not those of a parent, whose traps a child has
          next again(name) if workers.empty?

          workers.each { |worker, _| worker.stop(drain: asked ? 0 : nil) }
          asked = true
          @before[name].call(number) if @before[name].respond_to?(:call)
        end
      end

      # As if it had never been trapped.
      def again(name)
        restore(name)
        Process.kill(name, Process.pid)
      end

      def restore(name) = Signal.trap(name, @before[name] || "SYSTEM_DEFAULT")
    end
  end
  private_constant :Signals
end
