# frozen_string_literal: true

# A log of JSON: a line for each event, with the event's fields.

require "backhop"

# README: begin
require "json"
require "logger"
require "time"

Backhop.logger = Logger.new($stdout, level: Logger::INFO, formatter: lambda do |severity, time, _program, line|
  event = line.respond_to?(:event) ? line.event.to_h.except(:error) : {}
  "#{JSON.generate(level: severity, time: time.iso8601(3), line: line.to_s, **event)}\n"
end)
# README: end
