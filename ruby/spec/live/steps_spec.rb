# frozen_string_literal: true

require "json"

require "running"
require "spec_helper"
require_relative "support"
require_relative "carriers"

# The error of most handlers.
class Failed < StandardError; end
# An error of another class.
class Other < StandardError; end

# Plays each case of tests/contract/steps.json over each carrier of Ruby.
module Steps
  FILE = JSON.parse(File.read(File.join(ENV["BACKHOP_VECTORS"] || File.expand_path("../../../tests/vectors", __dir__),
                                        "../contract/steps.json")))
  KINDS = FILE["carriers"]["ruby"]
  CLIENTS = { "bunny-subscribe" => SubscribedClient, "bunny-wrap" => BunnyClient, "bunny-pool" => PoolClient,
              "kicks" => KicksClient }.freeze
  FIRST = %w[run bunny-subscribe bunny-wrap rehearse].freeze # in the fast profile
  ERRORS = { "access" => Backhop::AccessError, "broker" => Backhop::BrokerError, "clash" => Backhop::ClashError,
             "connection" => Backhop::ConnectionFailedError, "missing" => Backhop::MissingError,
             "publish" => Backhop::PublishError, "unpublished" => Backhop::PublishError }.freeze
  WORDS = { "{work_queue}" => "work_queue: :quorum", "{verify_mode}" => "mode: :verify",
            "{no_retry_after}" => "max_retry_after: 0", "{definitions}" => "topology.definitions" }.freeze
  LEVELS = {
    Logger::DEBUG => "debug", Logger::INFO => "info", Logger::WARN => "warning", Logger::ERROR => "error"
  }.freeze
  SAME = %i[exchange routing_key queue content_type content_encoding correlation_id reply_to type app_id priority
            message_id id attempt max_attempts].freeze
  OF_EVENT = %i[id attempt attempts count reason breaker connection error_class error_text].freeze

  module_function

  # Returns keyword arguments: names that end in _ms are durations.
  def options(given)
    given.to_h do |name, value|
      value /= 1000.0 if name.end_with?("_ms")
      [name.delete_suffix("_ms").to_sym, value.is_a?(String) ? value.tr("-", "_").to_sym : value]
    end
  end

  def policy(given) = Backhop::Policy.new(jitter: :none, **options(given))

  def ms(seconds) = seconds && (seconds * 1000).round

  def key(message) = message.body[/\A[a-z]+/] || raise(Other, "no key")

  # Changes what a client gave, in place.
  def spoil(message)
    message.body << " changed"
    message.headers["tenant"] << "EVIL"
    message.properties.headers.update("tenant" => "EVIL", "n" => [], "object" => Object.new)
    message.properties.content_type << "/EVIL"
  end

  # Returns what steps compare of a message.
  def fields(message)
    own = message.headers.reject { |name, _| name.start_with?("backhop-", "x-") }
    SAME.to_h { |name| [name.to_s, message.public_send(name)] }.merge(
      "body" => message.body.b, "headers" => Marshal.load(Marshal.dump(own)), "redelivered" => message.redelivered?,
      "last_attempt" => message.last_attempt?, "timestamp" => message.timestamp&.to_i,
      "last_error" => message.last_error.to_s, "last_delay_ms" => ms(message.last_delay),
      "failed" => !message.first_failure.nil?, "attempts" => message.history.attempts,
      "crashes" => message.history.crashes
    )
  end

  # Returns what steps compare of an event.
  def values(event)
    OF_EVENT.to_h { |name| [name.to_s, event.public_send(name)] }.merge(
      "error_class" => event.error_class.to_s, "delay_ms" => ms(event.delay), "level" => LEVELS[event.level],
      "is_error" => event.error.is_a?(Exception), "has_delay" => event.delay.positive?,
      "has_duration" => !event.duration.nil?, "has_lateness" => !event.lateness.nil?,
      "has_deferrals" => event.deferrals.to_i.positive?
    )
  end

  # Returns the cases of a carrier. `each` makes some of one.
  def of(name)
    own = FILE["cases"].select do |story|
      story["of"].include?(KINDS[name]) &&
        story.fetch("without", {}).keys.none? { |key| File.fnmatch(key, "ruby/#{name}") }
    end
    own.flat_map do |story|
      next [story] unless story["each"]

      having = story["each"].select { |_, since| (VERSION <=> since.split(".").map(&:to_i)) >= 0 }
      having.keys.map do |key|
        story.merge("id" => "#{story["id"]} #{key}", "options" => { **story["options"], "strategy" => key })
      end
    end
  end

  # A worker that Kicks itself runs, for the cases of flow control. It declares as it begins.
  class KicksOwn < Carriers::OfKicks
    def declare = nil

    def stop = super(PATIENCE)
  end

  # One case over one carrier. A method for each step has its name.
  class Play
    include Patience
    include RSpec::Matchers
    include Running

    def initialize(story, name)
      @story = story
      @kind = KINDS[name]
      @name = name
      @namespace = "test-#{SecureRandom.hex}"
      @told, @seen, @times, @wrong, @took = Array.new(5) { [] }
      @failures = Hash.new(0)
      @done = {} # deferrals by body
      @downs = 0
      @lock = Mutex.new
      @began = now
      @metrics = Backhop::Metrics.new
    end

    def call
      @broker = Broker.new
      @proxy = Proxy.new if @story["proxy"]
      given = @story.fetch("options", {})
      @queue = given["work_queue"] ? "#{@namespace}.work" : @broker.queue
      @options = options_of(given)
      @story["steps"].each do |step|
        @step = filled(step)
        (verb, value), *more = @step.to_a
        more = more.to_h.transform_keys(&:to_sym)
        __send__(verb == "call" ? :ask : verb, value, **more.except(:in)) if more.fetch(:in, @kind).include?(@kind)
      end
    ensure
      finish
    end

    # Plays a case that publishes, starts and compares calls.
    def rehearsed
      @queue = "work"
      first, _, *checks = @story["steps"]
      given = { policy: Steps.policy(FILE["policy"]), headers: first["headers"],
                properties: first["properties"].transform_keys(&:to_sym) }
      Backhop::Testing.rehearse(first["publish"], queue: "work", **given) { |message| handle(message) }
      checks.each { |check| filled(check).then { |step| __send__(*step.first) } }
    end

    private

    def finish
      @proxy&.release
      stop(true)
    ensure
      @proxy&.close
      @broker&.delete_all(*Live.names(@namespace))
      @broker&.close
    end

    def options_of(given)
      simple = %w[mode strategy work_queue confirm_timeout_ms]
      made = { namespace: @namespace, on_event: [@told.method(:push), @metrics], **Steps.options(given.slice(*simple)),
               policy: Steps.policy(given.fetch("policy", FILE["policy"])) }
      made[:never] = [Other] if given["never"]
      made[:policies] = { Other => Steps.policy(given["slow"]) } if given["slow"]
      made[:breaker] = @flow = flow(given["breaker"]) if given["breaker"]
      made
    end

    def flow(given)
      settings = { row_failures: 3, probe_successes: 1, **Steps.options(given),
                   pauses: Steps.policy("kind" => "fixed", "initial_ms" => 300) }
      settings[:errors] &&= Failed
      settings[:key] &&= Steps.method(:key).to_proc
      Backhop::Breaker.new("api", **settings)
    end

    # --- The handler

    def handle(message)
      fields = Steps.fields(message)
      body = fields["body"]
      number = @lock.synchronize do
        @times << now
        @wrong << "#{message.inspect} after #{@failures[body]} failures" if message.attempt != @failures[body] + 1
        @seen.count { |each| each["body"] == body }.tap { @seen << fields }
      end
      fits = ->(name) { name == body || (name.end_with?("*") && body.start_with?(name.delete_suffix("*"))) }
      rule = @story["handler"].find { |name, _| fits.call(name) }&.last || "ok"
      (rule.is_a?(String) ? rule : rule[number] || "ok").split("; ").each do |action|
        action == "spoil" ? Steps.spoil(message) : act(body, *action.split(" ", 2))
      end
      @lock.synchronize { @done[body] = message.history.deferrals }
    end

    def act(body, verb, text = "")
      case verb
      when "hold" then return @proxy.hold
      when "park" then raise Backhop::Park, text
      when "drop" then raise Backhop::Drop
      when "throttle-queue" then raise Backhop::Throttled.new(text.to_i / 1000.0, "429", whole_queue: true)
      when "down" then sleep 0.01
      end
      return if verb == "ok" || (verb == "down" && @is_up)

      @lock.synchronize do
        @failures[body] += 1
        @downs += 1 if verb == "down"
      end
      raise Backhop::RetryAfter.new(text.to_i / 1000.0, "busy") if verb == "retry-after"

      raise verb == "other" ? Other : Failed, text
    end

    # --- Helpers

    def await(&block)
      until_true(&block)
    rescue RuntimeError => e
      raise "#{e.message}: #{@step}\n#{@seen}\n#{@told.map(&:to_s).join("\n")}"
    end

    # Fills names in.
    def filled(value)
      case value
      when String
        value.gsub(/\{\w+\}/) do |name|
          { "{namespace}" => @namespace, **WORDS }[name] || place(name[1..-2])
        end
      when Array then value.map { |each| filled(each) }
      when Hash then value.transform_values { |each| filled(each) }
      else value
      end
    end

    # Returns the name of a queue or an exchange.
    def place(name)
      return "#{@namespace}#{name}" if name.start_with?(".")
      return @sibling ||= @broker.queue if name == "sibling"

      { "parked" => "#{@queue}.parked", "events" => "#{@namespace}.events" }.fetch(name, @queue)
    end

    def named(name) = @told.dup.select { |event| event.name.to_s == name }

    def client
      @client ||= begin
        kind = @name == "kicks" && @flow && !Carriers.missing("kicks") ? KicksOwn : CLIENTS.fetch(@name)
        kind.new(@url || @proxy&.url || URL, @queue, method(:handle), **@options)
      end
    end

    # --- Steps

    def start(how)
      @began = now
      if @kind == "worker"
        options = { queue: @queue, retry_events: true, threads: 4, prefetch: 20, **@options }
        @health = @client = worker = Backhop::Worker.new(URL, **options)
        handler = method(:handle)
        @running = Thread.new { @name == "run" ? worker.run(handler) : Async { worker.serve(handler) }.wait }
        await { named("connected").any? }
      else
        client.declare if @kind == "wrap" && how != "undeclared"
        @health = client.begin
      end
    end

    def stop(_)
      @client&.stop
      @running&.join
      @client = @running = nil
    end

    def publish(value, to: "work", key: "", numbers: nil, repeat: 1, headers: {}, properties: {})
      bodies = numbers ? Array.new(numbers) { |i| "#{value}#{i}" } : Array(value)
      target = to == "events" ? [key, place(to)] : [place(to), ""]
      bodies.each do |body|
        data = (body * repeat).encode("ISO-8859-1").b
        given = { delivery_mode: nil, **properties.transform_keys(&:to_sym) }
        @broker.publish(data, target[0], exchange: target[1], headers: headers, **given)
      end
    end

    def exchange(type, key:, queues:)
      @broker.channel.exchange_declare(place("events"), type)
      queues.each { |each| @broker.channel.queue_bind(place(each), place("events"), routing_key: key) }
    end

    def make(name, arguments: { "x-queue-type" => "classic" })
      @broker.channel.queue_declare(place(name), durable: true, arguments: arguments)
    end

    def delete(name) = @broker.channel.queue_delete(place(name))

    def delete_exchange(name) = @broker.channel.exchange_delete(place(name))

    def count(wanted) = await { wanted.all? { |name, number| @broker.count(place(name)) == number } }

    def some(wanted) = await { wanted.any? { |name, number| @broker.count(place(name)).to_i >= number } }

    # Bunny connects again, so the message is parked again.
    def redelivered(wanted) = some(wanted.slice("parked"))

    def take(name, bodies:, headers: {}, properties: nil)
      taken = Array.new(bodies.size) { @broker.get(place(name)) }
      expect(taken.map(&:last)).to eq(bodies)
      about = taken[0][1].to_hash
      expect(about.fetch(:headers, {}).slice(*headers.keys)).to eq(headers)
      expect(about.except(:headers).transform_keys(&:to_s)).to eq(properties) if properties
    end

    def all(name, bodies: nil, distinct: nil)
      found = @broker.all(place(name))
      expect(bodies ? found : found.uniq).to match_array(bodies || distinct)
    end

    def calls(wanted)
      least = wanted.is_a?(Array) ? wanted.size : wanted
      await { @seen.size >= least }
      return unless wanted.is_a?(Array)

      expect(@seen.size).to eq(least)
      @seen.zip(wanted) do |call, fields|
        fields = fields.merge("body" => fields["body"] * fields["repeat"]) if fields["repeat"]
        expect(call).to include(bytes(fields.except("repeat")))
      end
    end

    def bytes(fields) = fields["body"] ? fields.merge("body" => fields["body"].encode("ISO-8859-1").b) : fields

    def each_call(fields) = @seen.each { |each| expect(each).to include(bytes(fields)) }

    def bodies(wanted)
      found = @seen.map { |each| each["body"] }.tally
      expect(wanted.to_h { |body, _| [body, found.fetch(body, 0)] }).to eq(wanted)
    end

    def apart(number, least_ms:) = expect((@times[number] - @times[number - 1]) * 1000).to(be >= least_ms)

    def event(name, times: 1, text: "", not_text: "\0", error: nil, **fields)
      began = now
      wanted = fields.transform_keys(&:to_s)
      fits = lambda do |event|
        Steps.values(event).slice(*wanted.keys) == wanted && (!error || event.error.is_a?(ERRORS.fetch(error))) &&
          event.text.to_s.include?(text) && !event.text.to_s.include?(not_text)
      end
      await { named(name).count(&fits) >= times }
      @took << (now - began)
      expect(named(name).map(&:queue).uniq).to eq([@queue])
    end

    # A worker emits what happens to copies in another thread.
    def events(names, id:)
      told = @told.select { |event| event.id == id }.map { |event| event.name.to_s }
      copies = @kind == "worker" ? %w[retried parked] : []
      expect(told - copies).to eq(names - copies)
      expect(told & copies).to eq(names & copies)
    end

    def happened(wanted) = expect(wanted.to_h { |name, _| [name, named(name).size] }).to(eq(wanted))

    def no_event(names) = expect(@told.map { |event| event.name.to_s } & names).to(be_empty)

    def own_ids(number)
      ids = named("delivered").map(&:id).uniq
      expect(ids.size).to eq(number)
      expect(ids.grep(/\A\h{32}\z/)).to eq(ids)
      %w[failed retried succeeded].each { |name| expect(named(name).map(&:id).uniq).to match_array(ids) }
      expect(@seen.select { |each| each["attempt"] > 1 }.map { |each| each["id"] }.uniq).to match_array(ids)
    end

    def forget(_) = [@told, @took].each(&:clear)

    # Not each: a busy machine may be late.
    def quickest_ms(most) = expect(@took.min * 1000).to(be < most)

    def state(wanted) = await { @health.state.to_s == wanted }

    def gauge(number) = await { @metrics.text.include?(%(backhop_consumers_ready{queue="#{@queue}"} #{number}\n)) }

    def gauge_of_breaker(states)
      await { @metrics.text.match?(/^backhop_breaker_state\{queue="#{@queue}",breaker="api"\} [#{states}]$/) }
    end

    def pending(number) = await { client.retrier.pending == number }

    def replay(most, gives:)
      of = @kind == "worker" ? @client : client.retrier
      expect(of.replay(*most)).to eq(gives)
    end

    def ask(name) = name == "start" ? start(true) : client.retrier.public_send(name)

    def raises(kind, from:, texts: [])
      expect { ask(from) }.to raise_error(ERRORS.fetch(kind)) { |error| expect(error.message).to include(*texts) }
    end

    def declare_by_another(_)
      BunnyClient.new(URL, @queue, nil, **@options.except(:mode)).tap(&:declare).stop
    end

    # Goes on as a user who may configure nothing.
    def stranger(_)
      @topology = client.retrier.topology
      stop(true)
      @url = @broker.stranger(@namespace)
    end

    def import_topology(_) = @broker.import(@topology.definitions)

    def release(_) = @proxy.release

    # Cuts the connection, and waits until Bunny has another one: it cannot be closed before.
    def cut(_)
      before = client.connection.transport
      @proxy.cut
      await { !client.connection.transport.equal?(before) && !Backhop::Bunny::Channels.recovering?(client.connection) }
      state("ready") if @kind == "consumer"
    end

    # Acknowledges an unknown delivery, so that the broker closes the consumer's channel.
    def break_channel(_) = @health.channel.basic_ack(4711)

    def channels = client.connection.instance_variable_get(:@channels).size

    def note_channels(_) = @channels = channels

    def same_channels(_) = await { channels == @channels }

    # Makes the minute's look due. No message arrives meanwhile.
    def look(_) = client.retrier.instance_variable_get(:@publisher).instance_variable_set(:@look_due_ms, 0)

    def breaker(change) = @flow.public_send(change)

    def breaker_state(wanted, key: nil) = await { (key ? @flow.state_of(key) : @flow.state).to_s == wanted }

    def refused(more)
      least = @downs + more
      await { @downs >= least }
    end

    def up(_) = @is_up = true

    def handled(wanted)
      bodies = -> { @lock.synchronize { @done.keys } }
      await { wanted.all? { |prefix, number| bodies.call.count { |each| each.start_with?(prefix) } == number } }
    end

    def counted(_) = expect(@wrong).to(be_empty)

    # Calls that were permitted before it opened may end later: two rounds of handlers. Then come
    # probes.
    def spared(sent)
      most = 3 + (2 * [@kind == "wrap" ? 100 : 20, sent].min) + ((now - @began) / 0.3) + 2
      expect(@downs).to be <= most
    end

    def deferred_only(prefix)
      own, others = @done.partition { |body, _| body.start_with?(prefix) }
      expect([others.map(&:last).max, own.map(&:last).max]).to match([0, be_positive])
    end
  end
end

RSpec.describe "What a carrier does with messages" do
  Steps::KINDS.each do |name, kind|
    is_rehearsal = kind == "rehearsal"
    absent = NEEDS_BROKER || ("built without librabbitmq" if kind == "worker" && !Backhop.build_info.worker?)

    describe "over #{name}", long: !Steps::FIRST.include?(name), skip: is_rehearsal ? nil : absent do
      stage = Stage.new

      before(:context) do
        Carriers::OfKicks.load if name == "kicks" && !Carriers.missing(name)
        @logger = Backhop.logger
        Backhop.logger = Logger.new(IO::NULL)
        stage.start(self.class.filtered_examples.map(&:description)) unless absent && !is_rehearsal
      end

      after(:context) { Backhop.logger = @logger }

      Steps.of(name).each do |story|
        key = "#{story["id"]}: #{story["shows"]}"
        play = Steps::Play.new(story, name)
        stage.add(key, is_rehearsal ? play.method(:rehearsed) : play)
        it(key, long: story.key?("control")) do |example|
          error, example.metadata[:seconds] = stage.result(key)
          raise error if error
        end
      end
    end
  end
end
