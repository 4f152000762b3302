# frozen_string_literal: true

require "backhop/native"

require_relative "backhop/version"
require_relative "backhop/errors"
require_relative "backhop/text"
require_relative "backhop/times"
require_relative "backhop/status"
require_relative "backhop/core"
require_relative "backhop/checks"
require_relative "backhop/deadline"
require_relative "backhop/outcomes"
require_relative "backhop/log"
require_relative "backhop/unfinished"
require_relative "backhop/handler_call"
require_relative "backhop/amqp"
require_relative "backhop/delivery"
require_relative "backhop/preview"
require_relative "backhop/policy"
require_relative "backhop/failure_rules"
require_relative "backhop/topology"
require_relative "backhop/history"
require_relative "backhop/plan"
require_relative "backhop/message"
require_relative "backhop/breaker"
require_relative "backhop/handler_limit"
require_relative "backhop/decider"
require_relative "backhop/build_info"
require_relative "backhop/observe/event"
require_relative "backhop/health"
require_relative "backhop/observe/metrics"
require_relative "backhop/observe/listeners"
require_relative "backhop/worker/signals"
require_relative "backhop/worker/run"
require_relative "backhop/worker/handling"
require_relative "backhop/worker"

# Retries for RabbitMQ consumers. A failed message is retried later, only in the queue that failed,
# and is never lost.
#
#     policy = Backhop::Policy.new(initial: 10, factor: 3, max: 3600, jitter: 0.2, max_attempts: 8)
#     puts policy.preview                             # a table of the delays
#
# If you use Bunny, Kicks or Sneakers, see Backhop::Bunny and Backhop::Kicks. Otherwise use the
# worker:
#
#     worker = Backhop::Worker.new(
#       "amqp://localhost", queue: "cdn-purge", policy: policy, threads: 8
#     )
#     worker.run { |message| purge(message.body) }    # returns: ack; raises: retry
#
# If the handler returns, the message is acknowledged. If it raises, the message is retried after a
# delay. The handler can also raise:
#
#     Backhop::RetryAfter.new(30)     # retry, but not before 30 seconds have passed
#     Backhop::Park, "why"            # park the message now: no attempt can succeed
#     Backhop::Drop                   # acknowledge the message without a copy
#
# Times are seconds, as any Numeric.
module Backhop
  autoload :Bunny, "backhop/bunny"
  autoload :Declaring, "backhop/declaring"
  autoload :Kicks, "backhop/kicks"
  autoload :Notifications, "backhop/observe/notifications"
  autoload :OpenTelemetryMetrics, "backhop/observe/open_telemetry_metrics"
  autoload :OpenTelemetryTracing, "backhop/observe/open_telemetry_tracing"
  autoload :PrometheusMetrics, "backhop/observe/prometheus_metrics"
  autoload :Retrier, "backhop/retrier"
  autoload :Testing, "backhop/testing"
end
