# frozen_string_literal: true

require "logger"

require "backhop/native"

require_relative "backhop/errors"
require_relative "backhop/values"
require_relative "backhop/core"
require_relative "backhop/times"
require_relative "backhop/amqp"
require_relative "backhop/delivery"
require_relative "backhop/policy"
require_relative "backhop/topology"
require_relative "backhop/history"
require_relative "backhop/plan"
require_relative "backhop/outcomes"
require_relative "backhop/message"
require_relative "backhop/decider"
require_relative "backhop/explanation"
require_relative "backhop/build_info"
require_relative "backhop/event"
require_relative "backhop/metrics"
require_relative "backhop/signals"
require_relative "backhop/worker"

# Retries for RabbitMQ consumers: later each time, only to the queue that failed, never lost.
#
#     policy = Backhop::Policy.new(initial: 10, factor: 3, max: 3600, jitter: 0.2, max_attempts: 8)
#     puts policy.preview                             # a table, and data
#
# Over the client that you have, see Backhop::Bunny and Backhop::Kicks; or let the worker do it all:
#
#     worker = Backhop::Worker.new("amqp://localhost", queue: "cdn-purge", policy: policy, threads: 8)
#     worker.run { |message| purge(message.body) }    # returns: ack; raises: later
#
# A handler that returns acknowledges its message; one that raises sees it again, later. It may raise
#
#     Backhop::RetryAfter.new(30)     # not before 30 seconds
#     Backhop::Park, "why"            # never again: park it, for a person to look at
#     Backhop::Drop                   # nobody needs it any more
#
# Times are seconds, as any Numeric.
module Backhop
  autoload :Bunny, "backhop/bunny"
  autoload :Declaring, "backhop/declaring"
  autoload :Kicks, "backhop/kicks"
  autoload :Notifications, "backhop/notifications"
  autoload :OpenTelemetryMetrics, "backhop/open_telemetry_metrics"
  autoload :OpenTelemetryTracing, "backhop/open_telemetry_tracing"
  autoload :PrometheusMetrics, "backhop/prometheus_metrics"
  autoload :Retrier, "backhop/retrier"
  autoload :Testing, "backhop/testing"

  # Of the core, which is the gem's too.
  VERSION = Native.bh_version.freeze

  class << self
    # @return [Logger] what workers and retriers log to; default: warnings and errors, to $stderr
    attr_reader :logger

    # @param logger [Logger, nil] one, or what answers to add and level as it does; nil: nothing is logged
    # @raise [InvalidArgumentError] for what does not
    def logger=(logger)
      @logger = logger ? Values.logger(logger, "Backhop.logger") : Logger.new(nil)
    end

    # Logs at one of Logger's levels; a logger that fails is told of on $stderr, and changes nothing.
    # @api private
    def log(level, logger = self.logger, &text)
      logger.add(level, &text)
    rescue *Outcomes::FAILURES => e
      Kernel.warn("Backhop's logger failed: #{Outcomes.text(e)}")
    end
  end
  self.logger = Logger.new($stderr, level: Logger::WARN, progname: "backhop")
end
