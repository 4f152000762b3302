# frozen_string_literal: true

require "json"

require "spec_helper"
require "program"
require_relative "support"
require_relative "carriers"

# The contract for handlers (tests/contract): each case over each carrier of Ruby.
module Contract
  FILE = JSON.parse(File.read(File.join(ENV["BACKHOP_VECTORS"] || File.expand_path("../../../tests/vectors", __dir__),
                                        "../contract/cases.json")))
  KINDS = FILE["carriers"]["ruby"]
  ONLY_FIRST = ENV["BACKHOP_CONTRACT"] == "first" # of each class of endings, over all carriers
  LEVELS = {
    "debug" => Logger::DEBUG, "info" => Logger::INFO, "warning" => Logger::WARN, "error" => Logger::ERROR
  }.freeze
  LONG_CASES = %w[blocks-loop].freeze
  LONG = PATIENCE

  LINES = [] # rubocop:disable Style/MutableConstant -- [severity, text] of the log

  # A logger that keeps its lines.
  class KeepingLogger < Logger
    def initialize = super(nil)

    def add(severity, *)
      LINES << [severity, yield.to_s]
      true
    end
  end

  # Errors that cannot be read.
  BROKEN = {
    "text" => -> { Class.new(StandardError) { def message = raise(NotImplementedError, "subclass must define") }.new },
    "cause" => -> { RuntimeError.new("boom").tap { |it| it.define_singleton_method(:cause) { raise "unreadable" } } },
    "code" => -> { RuntimeError.new("boom").tap { |it| it.define_singleton_method(:code) { raise "unreadable" } } },
    "class name" => -> { Class.new(StandardError) { def self.to_s = raise("unreadable") }.new("boom") }
  }.freeze

  BASE = {
    "Exception" => -> { raise Exception, "boom" }, # rubocop:disable Lint/RaiseException
    "NoMemoryError" => -> { raise NoMemoryError, "boom" },
    "ScriptError" => -> { raise ScriptError, "boom" },
    "Async::Stop raised by hand" => -> { raise Async::Stop, "boom" },
    "a subclass of Exception" => -> { raise Class.new(Exception), "boom" } # rubocop:disable Lint/InheritException
  }.freeze

  # P4-1: work that nothing ran, whose message was acknowledged
  UNFINISHED = {
    "a thread" => -> { Thread.new { sleep 60 } },
    "a lambda" => -> { -> {} },
    "an enumerator" => -> { [1].each }
  }.freeze

  # P4-2
  class NoSuchPage < Backhop::Park
    def initialize(page) # rubocop:disable Lint/MissingSuper
      @page = page
    end

    def message = "no such page: #{@page}"
  end

  TAG = :terminate # of Bunny's pool
  THREAD = {
    "Thread.exit" => -> { Thread.exit },
    "Thread.current.kill" => -> { Thread.current.kill },
    "throw to an outer tag" => -> { throw TAG }
  }.freeze

  # P4-12: what the child does, and its status
  FORKED = { "returns" => [-> {}, 1], "an error" => [-> { boom }, 1], "SystemExit" => [-> { exit(3) }, 3] }.freeze

  PROGRAMS = {
    "ends-program" => { "SystemExit" => "exit(7)", "Interrupt" => "raise Interrupt",
                        "SignalException" => "raise SignalException, 'TERM'" },
    "kills-process" => { "exit!" => "exit!(0)" }
  }.freeze

  module_function

  def boom = raise("boom")

  # Raises an error whose cause is Park.
  def park_inside
    raise Backhop::Park, "inside"
  rescue Backhop::Park
    boom
  end

  # An error that is its own cause.
  def cyclic = RuntimeError.new("boom").tap { |error| error.define_singleton_method(:cause) { error } }

  def of(endings) = endings.transform_values { |ending| ->(_play, _message) { ending.call } }

  # Forks. Waits for the child, and compares its status.
  def fork_child(in_child, status)
    return in_child.call unless (child = fork)

    limit = Thread.new { sleep(PATIENCE) && Process.kill("KILL", child) }
    Process.wait(child)
    limit.kill
    raise "the child ended with #{$?}" unless $?.exitstatus == status
  end

  # By id, and variant: what the handler does with the play and the message.
  def endings
    @endings ||= {
      "returns" => ->(*) {},
      "error" => ->(*) { boom },
      "error-last" => ->(*) { boom },
      "park" => ->(*) { raise Backhop::Park, "boom" },
      "park-subclass" => { "with a text" => ->(*) { raise NoSuchPage, "/old/page" } },
      "park-inside" => { "as a cause" => ->(*) { park_inside } },
      "returns-unfinished" => of(UNFINISHED),
      "forks" => of(FORKED.transform_values { |ending| -> { fork_child(*ending) } }),
      "drop" => ->(*) { raise Backhop::Drop },
      "retry-after" => ->(*) { raise Backhop::RetryAfter.new("60s", "boom") },
      "throttled" => ->(*) { raise Backhop::Throttled.new("60s", "boom") },
      "retry-after-http-none" => ->(*) { raise Backhop::RetryAfter.new(nil, RuntimeError.new("boom")) },
      "base-error" => of(BASE),
      "cancels-itself" => ->(*) { Async::Task.current.stop },
      "stop-aborts" => ->(play, _) { play.carrier.abort && sleep(LONG) },
      "ends-thread" => of(THREAD),
      "broken-error" => BROKEN.transform_values { |error| ->(*) { raise error.call } },
      "cyclic-cause" => ->(*) { raise cyclic },
      "acks-itself" => ->(_, message) { message.delivery_info.channel.ack(message.delivery_info.delivery_tag) },
      "nacks-itself" => lambda do |_, message|
        message.delivery_info.channel.nack(message.delivery_info.delivery_tag, false, true)
        boom
      end,
      "closes-channel" => ->(_, message) { message.delivery_info.channel.close },
      "blocks-loop" => ->(*) { Fiber.new(blocking: true) { sleep 3 }.resume },
      "changes-message" => lambda do |_, message|
        message.body.replace("other")
        message.headers["tenant"] = "other"
        message.properties.headers["tenant"] = "other" if message.respond_to?(:properties)
        boom
      end,
      "spoils-message" => ->(_, message) { message.freeze && boom },
      "too-long" => ->(play, _) { sleep(play.name == "serve" ? LONG : 0.4) },
      "never-ends" => ->(*) { Queue.new.pop },
      "busy" => ->(play, _) { play.publish("second") && play.await("busy") },
      "fails-in-drain" => ->(play, _) { play.stopping && boom },
      "stop-too-late" => ->(play, _) { play.carrier.stop_early }
    }
  end

  # Returns [[variant, ending]] of a case.
  def variants(id)
    ending = endings[id]
    ending.is_a?(Hash) ? ending.to_a : [["", ending]]
  end

  # Returns why a carrier does not have a case; nil if it has.
  def missing(story, name)
    fits = lambda do |key|
      language, carrier = key.split("/")
      %w[ruby *].include?(language) && (carrier.nil? || File.fnmatch(carrier, name))
    end
    return story["only"].values.first if story["only"]&.keys&.none?(&fits)

    story.fetch("without", {}).find { |key, _| fits.call(key) }&.last
  end

  def expected(story, kind) = story.fetch("expect_of", {}).fetch(kind, story["expect"])

  def policy(story)
    given = FILE["defaults"]["policy"].merge(story.fetch("policy", {}))
    Backhop::Policy.new(initial: given["initial_ms"] / 1000.0, jitter: given["jitter"].to_sym,
                        max_attempts: given["max_attempts"])
  end

  # Returns true if `all` has the names of `some` in this order.
  def within?(some, all)
    rest = some.dup
    all.each { |name| rest.shift if name == rest.first }
    rest.empty?
  end

  # One case over one carrier.
  class Play
    include Patience
    include RSpec::Matchers

    attr_reader :name, :carrier

    def initialize(name, story, ending)
      @name = name
      @story = story
      @ending = ending
      @events = []
      @seen = []
    end

    def call
      @broker = Broker.new
      @queue = @broker.queue
      start
      check(Contract.expected(@story, KINDS.fetch(@name)))
    ensure
      finish
    end

    def publish(body)
      id = body unless @story["id"] == "closes-channel" # with an id, the success counts: F2
      @broker.publish(body, @queue, headers: { "tenant" => "acme" }, **{ message_id: id }.compact)
    end

    def await(name) = until_true { event(name) }

    # Begins to stop, once.
    def stopping = @stopping ||= @carrier.begin_stop(PATIENCE) || true

    private

    def start
      options = { policy: Contract.policy(@story), namespace: NAMESPACE, on_event: ->(event) { @events << event } }
      options[:timeout] = @story["timeout_ms"] / 1000.0 if @story["timeout_ms"]
      options[:threads] = 1 if @story["id"] == "busy"
      url = @story["id"] == "blocks-loop" ? "#{URL}?heartbeat=1" : URL
      @carrier = Carriers::ALL.fetch(@name).new(url, @queue, method(:handle), **options)
      @carrier.begin
      publish("first")
      until_true { @seen.any? }
    end

    def handle(message)
      is_first = @seen.empty?
      @seen << [message.body.dup, message.attempt, message.headers["tenant"], message.id]
      @ending.call(self, message) if is_first
    end

    def event(name) = @events.find { |each| each.name.to_s == name }

    def lines = LINES.select { |_, text| text.include?(@queue) && !text.start_with?("connected") }

    def saw(body, attempt) = until_true { @seen.drop(1).any? { |each| each.first(2) == [body, attempt] } }

    def check(expected)
      settle(expected)
      go_on(expected)
      names = -> { @events.map { |each| each.name.to_s } }
      until_true { Contract.within?(wanted_events(expected), names.call) }
      check_lines(expected)
      check_fields(expected)
    end

    def wanted_events(expected)
      return expected["events"] - ["cancelled"] if @story["id"] == "nacks-itself"

      is_back = expected["consumer"] == "again" && expected["message"] == "back"
      is_back ? %w[delivered stale cancelled] : expected["events"]
    end

    def settle(expected)
      id = @story["id"]
      case expected["message"]
      when "retried"
        await("retried")
        is_over = ["stops", "is closed by the broker"].include?(expected["consumer"])
        saw("first", expected["counted"] ? 2 : 1) unless expected["delay_ms_least"] || is_over
      when "deferred", "parked" then await(expected["message"])
      when "back"
        unless expected["consumer"] == "stops" || (id == "closes-channel" && @name != "bunny-subscribe")
          return saw("first", 1)
        end

        # Bunny's cancel waits for ever while the channel closes.
        until_true { @carrier.channel.closed? } if id == "closes-channel"
        @carrier.stop(PATIENCE)
        expect(@broker.get(@queue)[1][:headers] || {}).not_to include("backhop-attempts")
      end
    end

    def go_on(expected)
      until_true { @carrier.channel.closed? } if expected["consumer"] == "is closed by the broker"
      return unless ["goes on", "again"].include?(expected["consumer"])

      publish("second") unless @story["id"] == "busy"
      saw("second", 1)
    end

    def check_lines(expected)
      until_true { lines.any? { |_, text| text.include?(expected["text"]) } } if logs_text?(expected)
      return unless expected["level"] && level?

      # On a busy machine, a handler with a time limit is "busy" too.
      about = lines.reject { |_, text| text.to_s.start_with?("busy:") && !expected["events"].include?("busy") }
      expect(about.map(&:first).max).to eq(LEVELS.fetch(expected["level"])), lines.join("\n")
    end

    # Returns false if the highest line is no event's: the advice of a closed channel, the error of
    # a drain.
    def level?
      !@story["id"].end_with?("s-itself") && (@story["id"] != "stop-too-late" || @carrier.is_a?(Carriers::Run))
    end

    def logs_text?(expected) = expected["text"] == "aborted by a stop"

    def check_fields(expected)
      expect(event("failed").error_text).to include(@story["error"]) if @story["error"] && event("failed")
      expect(event("parked").reason).to eq(@story["reason"]) if @story["reason"]
      if expected["delay_ms_least"]
        expect(event(expected["message"]).delay).to be >= expected["delay_ms_least"] / 1000.0
      end
      expect(@seen.find { |each| each[1] == 2 }).to eq(["first", 2, "acme", "first"]) if expected["copy"]
    end

    def finish
      @carrier&.stop(@story["id"] == "never-ends" ? 0.05 : PATIENCE)
    ensure
      @broker.close
    end
  end

  NAMESPACE = "test-contract-#{SecureRandom.hex(4)}".freeze
end

RSpec.describe "The contract for handlers" do
  stories = Contract::FILE["cases"].select { |story| !Contract::ONLY_FIRST || story["first"] }

  describe "in a rehearsal" do
    actions = { "acknowledged" => :ack, "retried" => :retry, "deferred" => :defer, "parked" => :park,
                "dropped" => :drop }

    stories.each do |story|
      next if Contract.missing(story, "rehearse") || story["timeout_ms"] # a rehearsal has no time limit

      Contract.variants(story["id"]).each do |variant, ending|
        it "#{story["id"]} #{variant}" do
          calls = 0
          rehearsal = Backhop::Testing.rehearse("first".dup, policy: Contract.policy(story),
                                                             headers: { "tenant" => "acme" }) do |message|
            (calls += 1) == 1 ? ending.call(nil, message) : expect(message.headers["tenant"]).to(eq("acme"))
          end
          expect(rehearsal.first.plan.action).to eq(actions.fetch(story["expect"]["message"]))
          expect(rehearsal.map(&:number)).to eq([1, 2]) if story["expect"]["message"] == "retried"
          expect(rehearsal.first.delay).to be >= story["expect"].fetch("delay_ms_least", 0) / 1000.0
          expect(rehearsal.reason).to eq(story["reason"]) if story["reason"]
        end
      end
    end
  end

  Contract::KINDS.each do |name, kind|
    next if kind == "rehearsal"

    absent = NEEDS_BROKER || Carriers.missing(name)

    describe "over #{name}", skip: absent do
      include Patience

      stage = Stage.new

      before(:context) do
        Carriers::OfKicks.load if name == "kicks"
        @logger = Backhop.logger
        Backhop.logger = Contract::KeepingLogger.new
        stage.start(self.class.filtered_examples.map(&:description)) unless absent
      end

      after(:context) { Backhop.logger = @logger }

      stories.each do |story|
        next if Contract.missing(story, name)

        is_long = (Carriers.further?(name) && !Contract::ONLY_FIRST) || Contract::LONG_CASES.include?(story["id"])
        programs = Contract::PROGRAMS[story["id"]]
        programs&.each do |variant, code|
          it "#{story["id"]} #{variant}", long: is_long do
            broker = Broker.new
            queue = broker.queue
            broker.publish("first", queue)
            said = program(<<~RUBY, __dir__, name, URL, queue, Contract::NAMESPACE)
              require File.join(ARGV[0], "carriers")
              Backhop.logger = Logger.new($stdout)
              carrier = nil
              handler = lambda do |_message|
                sleep 0.01 until carrier.waiting?
                #{code}
              end
              Carriers::OfKicks.load if ARGV[1] == "kicks"
              carrier = Carriers::ALL.fetch(ARGV[1]).new(ARGV[2], ARGV[3], handler, namespace: ARGV[4],
                                                         on_event: ->(event) { puts "event \#{event.name}" })
              begin
                carrier.call
              rescue SystemExit, SignalException => e
                puts "main got \#{e.class}"
              end
              puts "over"
            RUBY
            expected = Contract.expected(story, kind)
            names = said.scan(/^event (\w+)/).flatten
            expect(Contract.within?(expected["events"], names)).to be(true), said
            if story["id"] == "ends-program"
              expect(said).to match(/ERROR/).and include("main got #{variant}", "over")
            else
              expect(said).not_to include("over")
            end
            expect(broker.get(queue)[1][:headers] || {}).not_to include("backhop-attempts")
          ensure
            broker&.close
          end
        end
        next if programs

        Contract.variants(story["id"]).each do |variant, ending|
          next unless ending # not played: see cases.json
          next if variant.start_with?("throw") && !name.start_with?("bunny") # only Bunny's pool catches a tag
          next if story["id"] == "busy" && name == "serve" # the handler is aborted

          key = "#{story["id"]} #{variant}".strip
          stage.add(key, Contract::Play.new(name, story, ending))
          it(key, long: is_long) do |example|
            error, example.metadata[:seconds] = stage.result(key)
            raise error if error
          end
        end
      end
    end
  end
end
