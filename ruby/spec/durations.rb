# frozen_string_literal: true

require "fileutils"
require "json"

# The durations of examples: as lines of JSON in the directory $BACKHOP_DURATIONS, if that is set.
module Durations
  DIRECTORY = ENV["BACKHOP_DURATIONS"].to_s
  SLOW = 20 # seconds; a hang can end as a slow pass

  @slow = []
  @lines = []

  class << self
    attr_reader :slow

    # Notes an example that has ended. Its metadata can have the duration: if others ran meanwhile,
    # the example waited.
    def add(example, seconds)
      return if example.skipped? || example.pending?

      seconds = (example.metadata[:seconds] || seconds).round(3)
      name = "#{example.file_path.delete_prefix("./")}: #{example.full_description}"
      @slow << [seconds, name] if seconds > SLOW && example.exception.nil?
      @lines << JSON.generate(suite: "ruby", test: name, seconds: seconds)
    end

    def write
      return if DIRECTORY.empty?

      FileUtils.mkdir_p(DIRECTORY)
      File.write(File.join(DIRECTORY, "ruby-#{Process.pid}.jsonl"), "#{@lines.join("\n")}\n")
    end
  end
end

RSpec.configure do |config|
  config.around do |example|
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    example.run
  ensure
    Durations.add(example.example, Process.clock_gettime(Process::CLOCK_MONOTONIC) - began)
  end

  config.after(:suite) do
    Durations.write
    next if Durations.slow.empty?

    list = Durations.slow.sort.reverse.map { |seconds, name| "  #{seconds} s  #{name}" }
    RSpec.configuration.reporter.message("\nPassed, but took more than #{Durations::SLOW} s:\n#{list.join("\n")}")
  end
end
