# frozen_string_literal: true

require "spec_helper"
require "running"
require_relative "support"
require_relative "carriers"

# A downstream that is down at first, or for some keys, and keeps its calls.
class Downstream
  attr_reader :calls, :times

  def initialize
    @calls = Queue.new
    @times = [] # of the calls
    @lock = Mutex.new
    @handled = Hash.new { |all, body| all[body] = [] } # [attempt, deferrals] by body
    @failures = Hash.new(0)
    @is_up = false
  end

  def down?(body) = !@is_up && !body.start_with?("good")

  def up
    @is_up = true
  end

  def call(message)
    @calls << message.body
    @lock.synchronize { @times << Patience.now }
    sleep 0.01
    @lock.synchronize do
      down?(message.body) ? @failures[message.body] += 1 : @handled[message.body] << message.attempt
    end
    raise IOError, "down" if down?(message.body)
  end

  # Returns the numbers of the attempts that succeeded, by body.
  def handled = @lock.synchronize { @handled.dup }

  # Returns the messages whose number of attempts does not match their own failures.
  def miscounted = handled.reject { |body, attempts| attempts == [@failures[body] + 1] }
end

# Each carrier while its breaker is open.
RSpec.describe "A breaker", skip: NEEDS_BROKER do
  include Live

  let(:queue) { broker.queue }
  let(:events) { Running::Events.new }
  let(:downstream) { Downstream.new }
  let(:pauses) { Backhop::Policy.new(kind: :fixed, initial: 0.3, jitter: :none) }
  let(:policy) { Backhop::Policy.new(kind: :fixed, initial: 0.2, jitter: :none, max_attempts: 8) }
  let(:breaker) { Backhop::Breaker.new("api", row_failures: 3, probe_successes: 1, pauses: pauses) }

  def carried(name, handler, breaker, url: URL, **options)
    skip Carriers.missing(name) if Carriers.missing(name)
    Carriers::OfKicks.load if name == "kicks"
    options = { policy: policy, namespace: namespace, on_event: events, breaker: breaker, **options }
    carrier = Carriers::ALL.fetch(name).new(url, queue, handler, **options)
    thread = Thread.new { carrier.call }
    thread.report_on_exception = false
    yield carrier
  ensure
    carrier&.stop(PATIENCE)
    thread&.kill
    thread&.join
  end

  def publish(count, prefix = "m") = count.times { |index| broker.publish("#{prefix}#{index}", queue) }

  def parked = broker.count("#{queue}.parked") || 0

  Carriers::ALL.each_key do |name|
    context "over #{name}", long: Carriers.further?(name) do
      it "spares a downstream that is down, and counts no attempt by waiting" do
        publish(60)
        carried(name, downstream, breaker) do
          opened = events.get(:breaker_opened)
          expect(opened).to have_attributes(breaker: "api", queue: queue, text: /3 .*IOError/)
          before = downstream.times.size + Carriers::THREADS # handlers may still begin
          until_true { downstream.times.size >= before + 4 }
          downstream.up
          probes = downstream.times[before, 4]
          expect(probes.each_cons(2).map { |first, second| second - first }).to all(be >= 0.3)
          events.get(:breaker_closed)
          until_true { downstream.handled.size == 60 }
        end
        expect(downstream.miscounted).to eq({})
        expect([parked, broker.count(queue)]).to eq([0, 0])
      end

      it "defers the messages of one key, and lets the others flow" do
        keyed = Backhop::Breaker.new("hosts", row_failures: 2, probe_successes: 1, pauses: pauses, probe_timeout: 2,
                                              key: ->(message) { message.body[/\A[a-z]+/] })
        publish(10, "bad")
        publish(20, "good")
        carried(name, downstream, keyed) do
          until_true { downstream.handled.size == 20 }
          until_true { keyed.state_of("bad") == :open }
          expect(keyed.state_of("good")).to eq(:closed)
          expect(events.get(:deferred)).to have_attributes(deferrals: be >= 1, delay: be > 0)
          downstream.up
          until_true { downstream.handled.size == 30 }
        end
        expect(downstream.miscounted).to eq({})
        expect(parked).to eq(0)
      end

      it "opens for the time of a Throttled for the whole queue" do
        times = Queue.new
        attempts = Queue.new
        handler = lambda do |message|
          times << now
          attempts << message.attempt
          raise Backhop::Throttled.new(1, "429", whole_queue: true) if times.size == 1
        end
        carried(name, handler, breaker) do
          publish(1)
          events.get(:breaker_opened)
          publish(4, "n")
          until_true { times.size == 6 }
        end
        first, second = Array.new(6) { times.pop }
        expect(second - first).to be > 0.95
        expect(Array.new(6) { attempts.pop }).to eq([1] * 6)
      end

      it "emits a change by hand, without a delivery" do
        carried(name, downstream, breaker) do
          publish(1, "good")
          until_true { downstream.handled.size == 1 }
          %i[open close disable].zip(%i[breaker_opened breaker_closed breaker_closed]).each do |change, event|
            breaker.public_send(change)
            events.get(event)
          end
        end
      end

      it "stays closed while a fifth of the messages are at fault themselves" do
        ours = Backhop::Breaker.new("api", row_failures: 3, least_calls: 10, failure_percent: 10, errors: IOError)
        handled = Queue.new
        handler = lambda do |message|
          raise ArgumentError, "malformed" if message.body.start_with?("bad")

          handled << message.attempt
        end
        5.times { |index| [*Array.new(4) { "good" }, "bad"].each { |kind| broker.publish("#{kind}#{index}", queue) } }
        carried(name, handler, ours, policy: Backhop::Policy.new(kind: :fixed, initial: 0.2, jitter: :none, max_attempts: 2)) do
          5.times { expect(events.get(:parked).attempts).to eq(2) }
          until_true { handled.size == 20 }
          expect(ours.state).to eq(:closed)
        end
        until_true { parked == 5 }
        expect(broker.count(queue)).to eq(0)
      end

      it "loses nothing if it stops while it is open" do
        breaker.open
        publish(5)
        carried(name, downstream, breaker) do |carrier|
          events.get(:breaker_opened)
          until_true { carrier.waiting? }
        end
        until_true { broker.count(queue) == 5 }
        expect(downstream.calls).to be_empty
      end

      it "counts an error of the key function as the message's own failure" do
        failing = Backhop::Breaker.new("hosts", key: ->(message) { message.headers.fetch("host") })
        broker.publish("a", queue)
        carried(name, downstream, failing, never: [KeyError]) do
          expect(events.get(:parked).error).to be_a(KeyError)
        end
        until_true { parked == 1 }
        expect(downstream.calls).to be_empty
      end
    end
  end

  %w[bunny-subscribe bunny-wrap kicks].each do |name|
    it "F4-1: lets held messages wait over #{name} if their queue is deleted", long: Carriers.further?(name) do
      breaker.open
      downstream.up
      publish(10) # the prefetch
      carried(name, downstream, breaker) do |carrier|
        until_true { broker.count(queue)&.zero? && carrier.waiting? }
        broker.channel.queue_delete(queue)
        broker.queue(name: queue)
        Backhop::Bunny::Retrier.new(broker.channel, queue: queue, policy: policy, namespace: namespace).declare
        deferred = Array.new(10) { events.get(:deferred) }
        expect(deferred).to all(have_attributes(attempts: 0, deferrals: 1))
        breaker.close
        # A copy that came back before its queue was declared is in the unroutable queue.
        until_true do
          downstream.handled.size + broker.count(queue).to_i + broker.count("#{namespace}.unroutable") == 10
        end
      end
      expect(downstream.miscounted).to eq({})
    end
  end

  %w[bunny-subscribe kicks].each do |name|
    it "emits a change by hand over #{name} before the first delivery" do
      carried(name, downstream, breaker) do |carrier|
        until_true { carrier.waiting? }
        breaker.open
        events.get(:breaker_opened)
      end
    end
  end

  describe "over bunny-subscribe, after its hold", :long do
    include Clock

    before { control_clock("backhop-gate") }

    def consumers = broker.channel.queue_declare(queue, passive: true).consumer_count

    # Holds five messages, and lets the hold pass.
    def hold_too_long(carrier, seconds)
      breaker.open(seconds)
      publish(5)
      events.get(:breaker_opened)
      gate = carrier.subscription.instance_variable_get(:@gate)
      until_true { gate.instance_variable_get(:@held).size == 5 }
      @ahead_ms += 31_000
      until_true { consumers.zero? }
    end

    # Waits until the subscription has looked that often at its connection and its breaker.
    def looks(carrier, count)
      made = 0
      allow(carrier.retrier).to(receive(:check_connection).and_wrap_original { |check| check.call.tap { made += 1 } })
      until_true { made >= count }
    end

    before { downstream.up }

    it "cancels its consumer, defers the messages, and consumes again" do
      carried("bunny-subscribe", downstream, breaker) do |carrier|
        hold_too_long(carrier, 33)
        deferred = Array.new(5) { events.get(:deferred) }
        expect(deferred).to all(have_attributes(attempts: 0, deferrals: 1, delay: be_between(1, 3)))
        until_true { carrier.subscription.state == :paused }
        expect(downstream.calls.size).to eq(0)
        until_true { downstream.handled.size == 5 }
        expect(carrier.subscription.ready(PATIENCE).state).to eq(:ready)
        expect(consumers).to eq(1)
      end
      expect(downstream.miscounted).to eq({})
    end

    it "does not consume on another connection before its pause is over" do
      carried("bunny-subscribe", downstream, breaker, url: proxy.url) do |carrier|
        hold_too_long(carrier, 120)
        5.times { events.get(:deferred) }
        proxy.cut
        until_true { events.get(:connected) }
        until_true { !Backhop::Bunny::Channels.recovering?(carrier.connection) }
        looks(carrier, 3)
        expect(consumers).to eq(0)
        publish(3, "n")
        breaker.close
        until_true { downstream.handled.size >= 3 }
        expect(consumers).to eq(1)
      end
      proxy.close
    end
  end
end
