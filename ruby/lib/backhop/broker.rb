# frozen_string_literal: true

require "open3"
require "rbconfig"
require "shellwords"

module Backhop
  module Testing
    # A model of RabbitMQ, for tests: in memory, in a process of its own, for this machine alone.
    #
    #     broker = Backhop::Testing::Broker.new
    #     channel = Bunny.new(broker.url.delete_suffix("/")).start.create_channel
    #     broker.control("kill")
    #     broker.close
    #
    # It starts at once, and its waits take no time: while no message is with a consumer, its clock
    # skips to the next TTL. In RSpec, `require "backhop/rspec"` gives each example with the tag
    # `:backhop_broker` its own, as `backhop_broker`.
    class Broker
      LONGEST_END_S = 1
      private_constant :LONGEST_END_S

      # @return [String] its AMQP URL, at a free port of 127.0.0.1, for the user guest
      attr_reader :url

      # @param version [String] of RabbitMQ: "3.10", "4.0" or "4.3"
      # @param clock [Symbol, String] `:skip`, or `:real` to let waits take their time
      # @raise [StateError] if the gem was built without the command, which has the model
      # @raise [Error] if the version or clock is unknown
      def initialize(version: "4.3", clock: :skip)
        programs = $LOAD_PATH.map { |path| File.join(path, "backhop/bin/backhop") }
        program = programs.find { |path| File.executable?(path) }
        program or raise StateError, "this gem was built without the command, which has the model: install " \
                                     "librabbitmq-dev, libjansson-dev, libyaml-dev and libmicrohttpd-dev, then " \
                                     "gem pristine backhop --extensions"
        words = [program, "model", "--control", "-", "--version", version.to_s, "--clock", clock.to_s]
        @input, @output, @problems, @process = Open3.popen3(*words)
        @lock = Mutex.new
        @url = @output.gets&.chomp or raise Error, failure
      end

      # Does what an operator or a fault would do. `control("kill")` and `control("start")` restart
      # the broker, `control("advance", 60_000)` lets 60,000 ms pass, `control("list", "queues")`
      # lists the queues. The manual backhop(1) lists all commands.
      #
      # @param words [Array<#to_s>] the words of a command
      # @return [Array<String>] the lines of the answer
      # @raise [Error] if the command is unknown, or failed
      # @raise [StateError] if the broker is closed
      def control(*words)
        line = Shellwords.join(words.map(&:to_s))
        line.match?(/[\n\0]/) and
          raise InvalidArgumentError, "#{line.inspect} has a line feed or a zero byte: give words without them"
        @lock.synchronize do
          raise StateError, "the broker is closed; start another one" unless @process.alive?

          @input.puts(line)
          read_answer
        end
      end

      # Ends the broker, with all its messages. It may be called again.
      #
      # @return [void]
      def close
        @input.close # at the end of its input the model ends, unless a forked child has it open too
        terminate unless @process.join(LONGEST_END_S)
        @process.value
        [@output, @problems].each(&:close)
      end

      private

      def terminate
        Process.kill("TERM", @process.pid)
      rescue Errno::ESRCH
        nil # it has just ended
      end

      def read_answer
        lines = []
        while (line = @output.gets&.chomp)
          return lines if line == "ok"
          raise Error, line.delete_prefix("error: ") if line.start_with?("error: ")

          lines << line
        end
        raise Error, failure
      end

      def failure
        text = @problems.read.strip
        text.empty? ? "backhop model ended with status #{@process.value.exitstatus}" : text
      end
    end
  end
end
