# frozen_string_literal: true

require_relative "observe/prometheus_metrics"
