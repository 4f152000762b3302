# frozen_string_literal: true

module Backhop
  # Traps INT and TERM while workers run: a signal stops each worker, and then calls the trap of
  # before.
  # @api private
  module Signals
    NAMES = %w[INT TERM].freeze

    @lock = Mutex.new
    @workers = [].freeze
    @before = {}

    class << self
      # Yields. The first signal calls the worker's `stop(drain: nil)`, each later one
      # `stop(drain: 0)`.
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
        is_stopping = false
        Signal.trap(name) do |number|
          # A forked child inherits the traps, but the parent's workers are not its own.
          workers = @workers.select { |_, pid| pid == Process.pid }
          next raise_again(name) if workers.empty?

          workers.each { |worker, _| worker.stop(drain: is_stopping ? 0 : nil) }
          is_stopping = true
          @before[name].call(number) if @before[name].respond_to?(:call)
        end
      end

      # Sends the signal again, with the trap of before.
      def raise_again(name)
        restore(name)
        Process.kill(name, Process.pid)
      end

      def restore(name) = Signal.trap(name, @before[name] || "SYSTEM_DEFAULT")
    end
  end
  private_constant :Signals
end
