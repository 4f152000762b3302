# frozen_string_literal: true

require_relative "observe/open_telemetry_metrics"
