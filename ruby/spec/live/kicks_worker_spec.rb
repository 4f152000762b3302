# frozen_string_literal: true

require "json"
require "open3"

require "spec_helper"
require "running"
require_relative "support"

# Kicks' own code runs a worker, in a process of its own, with the Bunny that it needs. BACKHOP_GEMS
# names the directory of both, beside the project by default.
module RealKicks
  GEMS = ENV["BACKHOP_GEMS"] || File.expand_path("../../../../shared/gems", __dir__)
  WANTED = { "kicks-3.3.0" => "bunny-2.24.0", "kicks-main" => "bunny-3.2.0" }.freeze
  VERSIONS = WANTED.slice(*(ENV["BACKHOP_KICKS"] || WANTED.keys)).freeze

  WORKER = <<~'RUBY'
    require "json"
    require "timeout"
    require "sneakers"
    require "sneakers/runner"
    require "backhop/kicks"

    $stdout.sync = true
    url, queue, namespace = ARGV
    Backhop.logger = Logger.new($stderr)
    Sneakers.configure(amqp: url, exchange: "", heartbeat: 30, log: IO::NULL)
    said = Mutex.new
    tell = ->(**told) { said.synchronize { puts JSON.generate(told) } }
    Sneakers.error_reporters << ->(error, _worker, _context) { tell.call(reported: error.class.to_s) }

    class Meddling
      def initialize(app, *) = @app = app

      def call(payload, delivery_info, metadata, handler)
        metadata.headers["tenant"] = "EVIL"
        metadata.headers["list"] << Object.new
        @app.call(payload, delivery_info, metadata, handler)
      end
    end
    Sneakers.middleware.use(Meddling, [])

    class Work
      include Sneakers::Worker

      policy = Backhop::Policy.new(kind: :fixed, initial: 0.2, jitter: :none, max_attempts: 2, max_retry_after: 1)
      from_queue ARGV[1], handler: Backhop::Kicks::Handler, threads: 4, prefetch: 20, ack: true, exchange: "",
                          queue_options: { durable: true, arguments: { "x-queue-type" => "quorum" } },
                          backhop: { policy: policy, namespace: ARGV[2], never: [KeyError] }

      def work_with_params(payload, delivery_info, metadata)
        message = delivery_info[:backhop]
        TELL.call(saw: payload, attempt: message.attempt, last: message.last_error, delay: message.last_delay,
                  exchange: delivery_info[:exchange], tag: delivery_info.delivery_tag.to_i)
        return ack! if message.attempt == 2 || message.redelivered?

        case payload
        when "ack" then ack!
        when "reject" then reject!
        when "requeue" then requeue!
        when "raise" then raise "no"
        when "bunny" then raise Bunny::ConnectionClosedError.new("a frame")
        when "timeout" then Timeout.timeout(0.01) { sleep }
        when "error" then :error
        when "later" then raise Backhop::RetryAfter.new(0.5, "busy")
        when "park" then raise Backhop::Park, "why"
        when "never" then raise KeyError, "never"
        when "drop" then raise Backhop::Drop
        when "thread" then Thread.new { nil } # P4-1: a worker may settle its message in a thread
        end
      end
    end
    TELL = tell

    worker = Work.new
    worker.run
    tell.call(ready: Bunny::VERSION)
    $stdin.gets
    worker.stop
  RUBY

  def self.missing(kicks)
    wanted = [kicks, "serverengine-2.4.0"]
    gone = wanted.reject { |gem| File.directory?(File.join(GEMS, gem)) }
    "left out: #{gone.join(", ")}, which #{GEMS} has not" unless gone.empty?
  end

  # The load path of a Kicks, with the Bunny that it needs if GEMS has it, else the installed one.
  def self.library(kicks)
    gems = [kicks, "serverengine-2.4.0", WANTED.fetch(kicks), "amq-protocol-2.8.0"]
    found = gems.map { |gem| File.join(GEMS, gem, "lib") }.select { |path| File.directory?(path) }
    [*found, ENV.fetch("RUBYLIB", "").split(":").grep_v(/bunny|amq-protocol/)].flatten.join(":")
  end
end

RealKicks::VERSIONS.each_key do |kicks|
  RSpec.describe "A worker of #{kicks}", :long, skip: NEEDS_BROKER || RealKicks.missing(kicks) do
    include Live

    let(:queue) { broker.queue({ "x-queue-type" => "quorum" }) }

    # Runs the worker until its events satisfy the block.
    def work(payloads)
      told = []
      Open3.popen2({ "RUBYLIB" => RealKicks.library(self.class.kicks) }, RbConfig.ruby, "-e", RealKicks::WORKER,
                   URL, queue, namespace) do |input, output, thread|
        reader = Thread.new { output.each_line { |line| told << JSON.parse(line, symbolize_names: true) } }
        until_true { told.any? { |each| each[:ready] } || !thread.alive? }
        payloads.each { |each| broker.publish(each, queue, headers: { "tenant" => "acme", "list" => [1] }) }
        yield told
        input.puts
        expect(thread.value).to be_success
        reader.join
      end
      told
    end

    def seen(told, payload) = told.select { |each| each[:saw] == payload }

    define_singleton_method(:kicks) { kicks }

    it "settles each result of its work" do
      payloads = %w[ack reject requeue raise bunny timeout error later park never drop thread]
      twice = %w[reject requeue raise bunny timeout error later]
      told = work(payloads) do |so_far|
        until_true do
          so_far.count { |each| each[:saw] } >= payloads.size + twice.size && broker.count("#{queue}.parked") == 2
        end
        until_true { so_far.any? { |each| each[:saw] == "later" && each[:attempt] == 2 } }
      end
      expect(payloads.to_h { |each| [each, seen(told, each).size] }).to eq(
        payloads.to_h { |each| [each, twice.include?(each) ? 2 : 1] }
      )
      again = twice.to_h { |each| [each, seen(told, each).last.values_at(:attempt, :last)] }
      expect(again).to match(
        "reject" => [2, "Backhop::Kicks::RejectedError: the worker rejected it"], "requeue" => [1, nil],
        "raise" => [2, "RuntimeError: no"], "bunny" => [2, /\ABunny::ConnectionClosedError: /],
        "timeout" => [2, /\ATimeout::Error: execution expired/], # a newer Ruby adds a cause of its own
        "error" => [2, "Backhop::Kicks::WorkError: the worker gave :error"], "later" => [2, "busy"]
      )
      expect(seen(told, "later").last[:delay]).to be >= 0.5
      expect(told.filter_map { |each| each[:reported] }).to match_array(%w[RuntimeError Timeout::Error KeyError])
      parked = Array.new(2) { broker.get("#{queue}.parked") }
      expect(parked.to_h { |_, properties, body|
               [body, properties[:headers].values_at("backhop-error", "tenant", "list")]
             }).to eq(
               "park" => ["why", "acme", [1]], "never" => ["KeyError: never", "acme", [1]]
             )
      expect(broker.bodies(queue, 1)).to eq(["thread"]) # nothing settled it
      until_true { broker.count(queue).zero? }
    end
  end
end
