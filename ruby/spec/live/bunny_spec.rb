# frozen_string_literal: true

require "spec_helper"
require "running"
require_relative "support"

# Possible faults of the adapters, on a broker: AMQP_URL names it, as tests/broker/broker sets it.
RSpec.describe "Retries over Bunny and Kicks", skip: NEEDS_BROKER do
  include Live
  include Clock

  let(:queue) { broker.queue }
  let(:parked) { "#{queue}.parked" }
  let(:options) { { policy: QUICK, namespace: namespace } }

  # As a busy broker does when a quorum queue is declared.
  def say_nothing_is_there(connection)
    allow(connection).to receive(:create_channel).and_wrap_original do |create, *options|
      channel = create.call(*options)
      allow(channel).to receive(:queue_declare).and_wrap_original do |declare, *declared|
        declare.call(*declared).tap { |answer| allow(answer).to receive(:message_count).and_return(0) }
      end
      channel
    end
  end

  # Keeps the next confirm that the retrier gets, until `release`.
  def hold_first_confirm(retrier)
    publisher = retrier.instance_variable_get(:@publisher)
    held = []
    allow(publisher).to receive(:notify).and_wrap_original do |notify, *notice|
      held.empty? && notice.first == :confirmed ? held << [notify, notice] : notify.call(*notice)
    end
    held.define_singleton_method(:release) { each { |notify, notice| notify.call(*notice) } }
    held
  end

  # Does as a client that gives a value which it cannot write.
  def spoil(message) = message.arrived_properties[:headers]["unknown to AMQP"] = Object.new

  CLIENTS.each do |name, client|
    context "with #{name}", long: further?(client) do
      let(:client) { client }

      it "keeps properties and headers with their types" do
        headers = {
          "text" => "grün", "binary" => "\xff\x00".b, "small" => 7, "minus" => -4711, "large" => 2**40, "true" => true,
          "nothing" => nil, "moment" => Time.utc(2026, 1, 2, 3, 4, 5), "real" => 1.5, "list" => [], "empty" => {},
          "table" => { "deep" => { "list" => [1, "two", { "three" => "\xfe".b }, nil, "last"] } }
        }
        properties = {
          content_type: "text/plain", content_encoding: "utf-8", priority: 3, correlation_id: "correlation",
          reply_to: "answers", message_id: "message 1", timestamp: 1_767_323_045, type: "kind", app_id: "shop",
          cluster_id: "c"
        }
        original = broker.queue
        [queue, original].each do |each|
          broker.publish(
            "", each, headers: headers, user_id: "guest", expiration: "600000", delivery_mode: 1, **properties
          )
        end
        copy = consuming(client, URL, queue, Handler.new(Backhop::Park.new("why")), **options) { broker.get(parked)[1] }
        before = broker.get(original)[1]
        expect(copy[:headers].slice(*headers.keys)).to eq(before[:headers])
        expect(copy.slice(*properties.keys)).to eq(properties.merge(timestamp: Time.at(1_767_323_045)))
        expect(copy.values_at(:delivery_mode, :user_id, :expiration)).to eq([2, nil, nil])
        own = copy[:headers].select { |key, _| key.start_with?("backhop-") }
        expect(own.delete("backhop-first-failure")).to be > 1_700_000_000_000
        expect(own).to eq(
          "backhop-queue" => queue, "backhop-attempts" => 1, "backhop-id" => "message 1", "backhop-exchange" => "",
          "backhop-routing-key" => queue, "backhop-error" => "why", "backhop-expiration" => "600000",
          "backhop-user-id" => "guest", "backhop-parked" => "permanent"
        )
      end

      # Kicks has no handlers with three parameters.
      client <= BunnyClient && it("changes neither body nor headers where the handler gets Bunny's own objects") do
        broker.publish("body", queue, headers: { "tenant" => "acme", "list" => ["a"] })
        connected(client, URL, queue, nil, **options) do |consumer|
          consumer.declare
          consumer.channel.queue(queue, no_declare: true)
                  .subscribe(manual_ack: true, &consumer.retrier.wrap { |_delivery_info, properties, payload|
                    payload << " changed"
                    properties.headers["tenant"] << "EVIL"
                    properties.headers["list"][0] = {}
                    raise Backhop::Park
                  })
          _, copy, body = broker.get(parked)
          expect([body, copy[:headers].values_at("tenant", "list")]).to eq(["body", ["acme", ["a"]]])
          consumer.retrier.drain(PATIENCE)
        end
      end

      it "settles what fails where there is no logger" do
        broker.publish("body", queue)
        Backhop.logger = nil
        _, copy, = consuming(client, URL, queue, Handler.failing(3), **options) { broker.get(parked) }
        expect(copy[:headers]["backhop-parked"]).to eq("exhausted")
      end

      it "works with names that are not ASCII" do
        own = "#{namespace}.grün"
        broker.queue(name: own.b)
        handler = Handler.new(RuntimeError.new, Backhop::Park.new("schön"))
        broker.publish("", own.b)
        consuming(client, URL, own, handler, **options, namespace: "#{namespace}.ö") do |consumer|
          copy = broker.get("#{own}.parked".b)[1]
          expect(copy[:headers]["backhop-error"].dup.force_encoding("UTF-8")).to eq("schön")
          broker.delete(consumer.retrier.topology)
        end
        broker.channel.queue_delete("#{own}.parked".b)
      end

      it "waits for no confirm in a burst of failures" do
        count = 80
        consumer = nil
        is_held = false
        begun = Queue.new
        handler = lambda do |message|
          raise Backhop::Park, "why" if message.body == "opens the channel"

          begun.push(message)
          until_true { is_held || begun.size + consumer.backlog >= count } # the client has all messages
          is_held = proxy.hold # the confirms
          raise Backhop::Park, "why"
        end
        connected(client, proxy.url, queue, handler, **options) do |made|
          consumer = made
          consumer.declare
          broker.publish("opens the channel", queue)
          consumer.begin
          broker.bodies(parked, 1)
          until_true { consumer.retrier.pending.zero? }
          count.times { broker.publish("", queue) }
          until_true { consumer.retrier.pending == count }
          proxy.release
          until_true { broker.count(parked) == count }
        end
        expect(broker.count(queue)).to eq(0)
        proxy.close
      end

      it "sends one probe for each timeout to a broker that does not confirm, and settles each message once" do
        count = 20
        held = proxy
        handler = lambda do |message|
          held.hold if message.body == (count - 1).to_s
          raise Backhop::Park, "why"
        end
        told = Queue.new
        broker.publish("opens the channel that publishes", queue)
        given = { **options, confirm_timeout: 1, on_event: told.method(:push) }
        consuming(client, proxy.url, queue, handler, **given) do |consumer|
          broker.bodies(parked, 1)
          until_true { consumer.retrier.pending.zero? }
          told.clear
          count.times { |i| broker.publish(i.to_s, queue, message_id: i.to_s) }
          late = []
          until_true { !told.empty? && (late << told.pop).count { |each| each.name == :unconfirmed } >= 4 }
          late.each { |each| told << each }
          proxy.release
          until_true { consumer.retrier.pending.zero? }
          expect(broker.channel.queue_declare(queue, passive: true).message_count).to eq(0)
        end
        events = Array.new(told.size) { told.pop }.group_by(&:name)
        expect(events[:parked].map(&:id)).to match_array(Array.new(count, &:to_s))
        found = broker.all(parked)
        expect(found.uniq).to match_array(Array.new(count, &:to_s))
        expect(found.size).to be <= count + events[:unconfirmed].size
        expect(broker.count(queue)).to eq(0)
        proxy.close
      end

      it "publishes a copy once that the broker does not read for want of memory", :long do
        skip "BACKHOP_BROKER_CTL is not set" unless ENV["BACKHOP_BROKER_CTL"]
        count = 3
        count.times { |i| broker.publish(i.to_s, queue) }
        handler = Handler.failing(count, Backhop::Park)
        connected(client, URL, queue, handler, **options) do |consumer|
          consumer.declare
          control_clock("backhop")
          broker.control("set-alarm")
          begin
            consumer.begin
            until_true { log.string.include?("blocked: ") && consumer.retrier.pending == count }
            pass(100) # more than confirm_timeout
            expect(consumer.retrier.pending).to eq(count)
          ensure
            broker.control("clear-alarm")
          end
          until_true { consumer.retrier.pending.zero? }
        end
        expect(log.string).not_to include("unconfirmed: ")
        expect(broker.bodies(parked, count).sort).to eq(%w[0 1 2])
        expect([broker.count(parked), broker.count(queue)]).to eq([0, 0])
      end

      it "leaves the original of a copy that cannot be encoded, and confuses no other" do
        handler = lambda do |message|
          spoil(message) if message.body == "bad"
          raise Backhop::Park, "why"
        end
        consuming(client, URL, queue, handler, **options) do
          %w[one bad two bad three].each { |body| broker.publish(body, queue, headers: { "number" => 1 }) }
          expect(broker.bodies(parked, 3)).to contain_exactly("one", "two", "three")
          until_true { log.string.scan("it stays unacknowledged").size == 2 }
        end
        expect(broker.bodies(queue, 2)).to eq(%w[bad bad])
        expect(broker.count(parked)).to eq(0)
      end

      [1000, 1500].each do |levels|
        it "leaves or parks a message with #{levels} levels of headers, as its stack bears, and confuses no other" do
          handler = Handler.new
          handler.define_singleton_method(:call) do |message|
            super(message)
            raise Backhop::Park, "why"
          end
          left = -> { log.string.include?("can be neither read nor copied: it stays unacknowledged") }
          consuming(client, URL, queue, handler, **options) do |consumer|
            broker.publish("one", queue)
            broker.publish_deep("deep", queue, levels)
            broker.publish("two", queue)
            # A thread may get the larger stack of one that ended.
            until_true { broker.count(parked) == (left.call ? 2 : 3) }
            broker.publish("three", queue)
            until_true { broker.count(parked) == (left.call ? 3 : 4) }
            until_true { consumer.retrier.pending.zero? }
          end
          bodies = broker.all(parked) + (left.call ? broker.bodies(queue, 1) : [])
          expect(bodies).to contain_exactly("one", "deep", "two", "three")
          expect([broker.count(parked), broker.count(queue)]).to eq([0, 0])
        end
      end

      it "settles no message of before a reconnect, and all of after" do
        gate = Queue.new
        first = true
        handler = Handler.new
        handler.define_singleton_method(:call) do |message|
          super(message)
          next unless message.body == "held" && first

          first = false
          gate.pop # ends after the reconnect, where its thread lives on
        end
        broker.publish("held", queue)
        consuming(client, proxy.url, queue, handler, **options) do |consumer|
          handler.saw(1)
          proxy.cut
          handler.saw(2)
          50.times { |i| broker.publish(i.to_s, queue) }
          handler.saw(52)
          gate << :go
          broker.publish("another", queue)
          handler.saw(53)
          expect(consumer.channel).to be_open
        end
        expect(handler.messages.map(&:body).tally["held"]).to eq(2)
        expect(handler.messages.map(&:redelivered?).first(2)).to eq([false, true])
        expect(broker.count(queue)).to eq(0)
        proxy.close
      end

      it "retries what fails right after a reconnect" do
        handler = Handler.new
        came = []
        broker.publish("first", queue)
        consuming(client, proxy.url, queue, handler, **options) do
          handler.saw(1)
          handler.define_singleton_method(:call) do |message|
            super(message)
            raise Backhop::Park, "after"
          end
          3.times do |round|
            bodies = Array.new(40) { |i| "#{round}-#{i}" }
            proxy.cut
            bodies.each { |body| broker.publish(body, queue) }
            came << broker.get(parked).last until (bodies - came).empty? # some may come twice
          end
        end
        expect(broker.all(queue) - came).to eq([])
        proxy.close
      end

      it "replays what was parked when it began, also where the broker says that nothing is" do
        count = 3
        count.times { |i| broker.publish(i.to_s, queue) }
        consuming(client, URL, queue, Handler.failing(1000, Backhop::Park), **options) do |consumer|
          until_true { broker.count(parked) == count }
          say_nothing_is_there(consumer.connection)
          expect(consumer.retrier.replay(0)).to eq(0)
          expect(consumer.retrier.replay).to eq(count)
          until_true { broker.count(parked) == count }
        end
      end
    end
  end

  describe "declaring" do
    # Bunny waits for the broker's answer until its time limit, though the broker closed the
    # connection.
    it "W3: refuses a stream as a work queue", :long, :real do
      stream = "#{namespace}.stream"
      broker.channel.queue_declare(stream, durable: true, arguments: { "x-queue-type" => "stream" })
      connected(BunnyClient, URL, stream, Handler.new, **options) do |consumer|
        consumer.declare
        expect { consumer.retrier.subscribe { nil } }.to raise_error(Backhop::ClashError, /is a stream/)
      end
      [stream, "#{stream}.parked"].each { |name| broker.channel.queue_delete(name) }
    end
  end

  describe "a Bunny::Retrier" do
    it "publishes again what no channel was free for" do
      handler = Handler.new(Backhop::RetryAfter.new(0.3))
      policy = Backhop::Policy.new(initial: 0.1, jitter: :none, max: 0.1, max_retry_after: 10)
      given = { policy: policy, namespace: namespace, bunny: { channel_max: 4 } } # Bunny uses three of them
      connected(BunnyClient, URL, queue, handler, **given) do |consumer|
        consumer.declare
        extra = []
        begin
          loop { extra << consumer.connection.create_channel }
        rescue RuntimeError
          extra.pop.close # for copies: none is left for the rung
        end
        consumer.begin
        broker.publish("body", queue)
        until_true { log.string.include?("no channel can be opened") }
        expect { consumer.retrier.replay }.to raise_error(Backhop::ConnectionFailedError, /no channel can be opened/)
        extra.each(&:close)
        handler.saw(2)
      end
      expect(handler.messages.last.attempt).to eq(2)
      broker.delete(Backhop::Topology.new(queue, policy: policy, namespace: namespace))
    end

    it "D6: waits longer and longer for a channel, also with decorrelated jitter" do
      delays = Queue.new
      on_event = ->(event) { delays << event.delay if event.name == :unavailable }
      back_off = Backhop::Policy.new(initial: 0.01, jitter: :decorrelated) # the first delay is below 0.03 s
      given = { policy: QUICK, namespace: namespace, back_off: back_off, on_event: on_event, bunny: { channel_max: 3 } }
      connected(BunnyClient, URL, queue, Handler.new(Backhop::Park.new), **given) do |consumer|
        consumer.declare
        consumer.begin
        other = consumer.connection.create_channel # the second one; a connection has one less than channel_max
        broker.publish("body", queue)
        until_true { delays.pop > 0.03 }
        other.close
        until_true { broker.count("#{queue}.parked") == 1 }
      end
    end

    it "publishes again what a broker refuses whose names are not ASCII" do
      own = "#{namespace}.ü"
      topology = nil
      consuming(BunnyClient, URL, queue, Handler.new(RuntimeError.new), policy: QUICK, namespace: own) do |consumer|
        topology = consumer.retrier.topology
        broker.channel.exchange_delete("#{own}.wait.100".b)
        broker.publish("body", queue, message_id: "ä")
        until_true { log.string.include?("NOT_FOUND - no exchange") }
        until_true { consumer.retrier.pending.zero? }
      end
      expect(log.string.force_encoding("UTF-8")).to include("message \"ä\" of ", "'#{own}.wait.100'")
      expect(log.string).not_to include("ERROR")
      broker.delete(topology)
    end

    it "replays each message once, where one among them cannot be copied" do
      connected(BunnyClient, URL, queue, nil, **options, bunny: { frame_max: 8192 }) do |consumer|
        consumer.declare
        4.times { |i| broker.publish(i.to_s, parked, headers: { "n" => 1 }) }
        broker.publish("large", parked, headers: { "n" => "x" * 9000 })
        until_true { broker.count(parked) == 5 }
        expect { consumer.retrier.replay }.to raise_error(Backhop::FrameError)
        until_true { consumer.retrier.pending.zero? }
      end
      until_true { broker.count(parked) == 1 }
      expect(broker.bodies(queue, 4)).to eq(%w[0 1 2 3])
      expect(broker.bodies(parked, 1)).to eq(["large"])
    end

    it "declares for a further queue of its namespace what is that queue's own, until the connection is lost" do
      made = []
      allow_any_instance_of(Backhop::Bunny::Declarer).to receive(:declare).and_wrap_original do |original, what, action|
        made << what.name
        original.call(what, action)
      end
      declared = ->(retrier) { made.clear && retrier.declare && made.uniq }
      connected(BunnyClient, proxy.url, queue, nil, **options) do |consumer|
        first = declared.call(consumer.retrier)
        sibling = broker.queue
        another = Backhop::Bunny::Retrier.new(consumer.channel, queue: sibling, **options)
        expect(first.size).to be > 5
        expect(declared.call(another)).to contain_exactly(sibling, "#{sibling}.parked")
        expect(declared.call(another).size).to eq(first.size) # declaring again trusts no earlier declaration
        connection = consumer.connection
        before = connection.transport
        proxy.cut
        until_true { !connection.transport.equal?(before) && connection.status == :open && consumer.channel.open? }
        expect(declared.call(consumer.retrier)).to match_array(first)
      end
      proxy.close
    end

    it "processes what queue.pop gives, and goes on after a failure" do
      seen = []
      poisoned = 0
      connected(BunnyClient, URL, queue, nil, **options) do |consumer|
        consumer.declare
        broker.publish("one", queue)
        broker.publish("poison", queue, headers: { "x-delivery-count" => 1, "backhop-crashes" => 20 })
        bunny_queue = consumer.channel.queue(queue, no_declare: true)
        until_true do
          consumer.retrier.process(*bunny_queue.pop(manual_ack: true)) do |message|
            seen << message.attempt
            raise "no" if message.attempt < 3
          end
          seen.size == 3 && poisoned == 1
        rescue Backhop::PoisonError
          poisoned += 1
          false
        end
      end
      expect(seen).to eq([1, 2, 3])
      expect(broker.bodies(parked, 1)).to eq(["poison"])
      expect(broker.count(queue)).to eq(0)
    end

    it "processes no message that is to wait, and says so" do
      broker.publish("", queue, headers: { "x-delivery-count" => 1, "backhop-crashes" => 4 })
      connected(BunnyClient, URL, queue, nil, **options) do |consumer|
        consumer.declare
        bunny_queue = consumer.channel.queue(queue, no_declare: true)
        expect { until_true { consumer.retrier.process(*bunny_queue.pop(manual_ack: true)) { raise "it is seen" } } }
          .to raise_error(Backhop::PoisonError, /\Aretried: .*its consumer was lost, or gave it back, 5 times/)
        until_true { consumer.retrier.process(*bunny_queue.pop(manual_ack: true)) { nil } }
      end
    end

    it "gives a handler what it asks for" do
      got = {}
      connected(BunnyClient, URL, queue, nil, **options) do |consumer|
        consumer.declare
        retrier = consumer.retrier
        target = Class.new { define_method(:handle) { |message| got[:method] = message } }.new
        blocks = [
          retrier.wrap { |message| got[:one] = message },
          retrier.wrap { |delivery_info, properties, payload| got[:three] = [delivery_info, properties, payload] },
          retrier.wrap { |_delivery_info, _properties, _payload, message| got[:four] = message },
          retrier.wrap { got[:none] = true },
          retrier.wrap(&target.method(:handle))
        ]
        bunny_queue = consumer.channel.queue(queue, no_declare: true)
        blocks.each do |block|
          broker.publish("body", queue, message_id: "7")
          until_true do
            delivery = bunny_queue.pop(manual_ack: true)
            delivery[0] && (block.call(*delivery) || true)
          end
        end
      end
      expect(got.values_at(:one, :four, :method)).to all(be_a(Backhop::Bunny::Message).and(have_attributes(id: "7")))
      expect(got[:three].map(&:class)).to eq([Bunny::GetResponse, Bunny::MessageProperties, String])
      expect([got[:none], broker.count(queue)]).to eq([true, 0])
    end

    it "hands messages to a Bunny::Consumer" do
      got = Running::Inbox.new
      connected(BunnyClient, URL, queue, nil, **options) do |made|
        made.declare
        consumer = Bunny::Consumer.new(made.channel, queue, "consumer", false)
        consumer.on_delivery(&made.retrier.wrap { |message|
          got.call(message.attempt)
          raise "again" if message.attempt == 1
        })
        made.channel.basic_consume_with(consumer)
        broker.publish("body", queue)
        expect([got.get, got.get]).to eq([1, 2])
        Client.finish(consumer)
      end
      expect(broker.count(queue)).to eq(0)
    end

    it "settles in another thread what it has read" do
      consumer = nil
      threads = []
      connected(BunnyClient, URL, queue, nil, **options) do |made|
        consumer = made
        made.declare
        made.channel.queue(queue, no_declare: true).subscribe(manual_ack: true) do |*delivery|
          message = made.retrier.read(*delivery)
          threads << Thread.new { made.retrier.settle(message, Backhop::Park.new("in a thread")) }
        end
        10.times { broker.publish("", queue) }
        until_true { broker.count(parked) == 10 }
        threads.each(&:join)
      end
      expect([consumer.retrier.pending, broker.count(queue)]).to eq([0, 0])
    end

    it "keeps no thread while nothing is pending, and goes on with a new one" do
      handler = Handler.failing(2, Backhop::Park)
      consuming(BunnyClient, URL, queue, handler, **options) do |consumer|
        2.times do |i|
          broker.publish("", queue)
          until_true { broker.count(parked) == i + 1 }
          consumer.retrier.drain
          until_true { Thread.list.none? { |thread| thread.name == "backhop" } }
        end
      end
      until_true { broker.count(parked) == 2 }
      expect(broker.count(queue)).to eq(0)
    end

    it "leaves the user's channel as it is" do
      connected(BunnyClient, URL, queue, nil, **options) do |consumer|
        consumer.declare
        expect(consumer.channel.using_publisher_confirms?).to be(false)
        expect(consumer.channel.exchanges).to be_empty
      end
    end

    it "says in drain how many are not confirmed" do
      held = proxy
      handler = lambda do |_|
        held.hold
        raise Backhop::Park
      end
      consuming(BunnyClient, proxy.url, queue, handler, **options) do |consumer|
        broker.publish("body", queue)
        until_true { consumer.retrier.pending == 1 }
        expect { consumer.retrier.drain(0.1) }.to raise_error(Backhop::WaitTimeoutError, /1 message: .*not confirmed/)
        proxy.release
      end
      proxy.close
    end

    # As Bunny 2.19 does at each confirm of several: see ConfirmChannel::Unconfirmed.
    it "publishes while the lowest number is looked for that is not confirmed" do
      held = proxy
      connection = Bunny.new(held.url, **PATIENT).start
      decider = Backhop::Decider.new(Backhop::Topology.new(queue))
      plan = decider.plan(decider.read, Backhop::Park.new)
      copy = Backhop::Bunny::Copy.new(plan, { headers: plan.copy_headers(nil) }, "", nil)
      heard = Queue.new
      listener = double
      # All are returned first.
      allow(listener).to receive(:notify) { |name, _, number| heard << number if name == :confirmed }
      confirming = Backhop::Bunny::ConfirmChannel.new(connection, decider.topology, listener) { 1 }
      confirming.publish(copy)
      expect(heard.pop).to eq(1)
      held.hold
      unconfirmed = connection.find_channel(1).unconfirmed_set
      looking = Thread.new { loop { unconfirmed.min } }
      4000.times { confirming.publish(copy) }
      looking.kill.join
      held.release
      expect(Array.new(4000) { heard.pop }).to match_array(2..4001)
      expect(unconfirmed).to be_empty
      connection.close
      held.close
    ensure
      looking&.kill
    end

    it "publishes on another channel where its own was closed in order, and tells nobody" do
      events = Queue.new
      handler = Handler.new(*[Backhop::Park.new] * 2)
      connected(BunnyClient, URL, queue, handler, **options, on_event: events.method(:push)) do |consumer|
        consumer.declare
        consumer.begin
        broker.publish("one", queue)
        until_true { broker.count(parked) == 1 && consumer.retrier.pending.zero? }
        publishing = consumer.connection.instance_variable_get(:@channels).values.find(&:using_publisher_confirmations?)
        publishing.close
        broker.publish("two", queue)
        until_true { broker.count(parked) == 2 && consumer.retrier.pending.zero? }
      end
      expect(Array.new(events.size) { events.pop.name }).to eq(%i[delivered failed parked delivered failed parked])
    end

    it "closes no channel twice if its close was answered too late: the broker would close the connection" do
      told = StringIO.new
      connection = Bunny.new(proxy.url, **PATIENT, continuation_timeout: 2000, logger: Logger.new(told)).start
      channel = Backhop::Bunny::Channels.open(connection)
      proxy.hold
      Backhop::Bunny::Channels.close(channel)
      proxy.release
      connection.close
      expect(connection).to be_closed
      expect(told.string).not_to match(/CHANNEL_ERROR|recover/i)
      proxy.close
    end

    it "waits for the confirm of a replay while the topology cannot be declared" do
      calls = Hash.new(0)
      handler = lambda do |message|
        calls[message.body] += 1
        raise(message.body == "parked" ? Backhop::Park : "why") if calls[message.body] == 1
      end
      connected(BunnyClient, URL, queue, handler, **options) do |consumer|
        retrier = consumer.retrier
        consumer.declare
        consumer.begin
        broker.publish("parked", queue)
        until_true { broker.count(parked) == 1 && retrier.pending.zero? }
        confirms = hold_first_confirm(retrier)
        replaying = Thread.new { retrier.replay }
        until_true { confirms.any? }
        allow(retrier).to receive(:make).and_raise(Backhop::MissingError, "the topology is forbidden")
        waits = retrier.topology.declarations.select { |each| each.what == :queue && each.name.include?(".wait.") }
        waits.each { |each| broker.channel.queue_delete(each.name) }
        broker.publish("fails", queue)
        until_true { log.string.include?("the topology is forbidden") }
        expect(replaying).to be_alive
        allow(retrier).to receive(:make).and_call_original
        confirms.release
        expect(replaying.value).to eq(1)
        until_true { calls == { "parked" => 2, "fails" => 2 } }
        expect(broker.count(parked)).to eq(0)
      end
    end

    it "ends what is pending where the connection is closed" do
      connected(BunnyClient, URL, queue, Handler.new(Backhop::Park.new), **options) do |consumer|
        consumer.begin
        broker.publish("body", queue)
        until_true { log.string.include?("the broker returned the copy") } # there is no queue for it
        retrier = consumer.retrier
        until_true { retrier.pending == 1 }
        # The retrier finds the connection closed just before Bunny says that the application closed
        # it.
        consumer.connection.define_singleton_method(:close_all_channels) { nil }
        consumer.connection.define_singleton_method(:clean_up_on_shutdown) do
          super()
          Patience.until_true { retrier.pending.zero? }
        end
        consumer.connection.close
        retrier.drain(PATIENCE)
      end
      expect(log.string).not_to match(/disconnected/)
      until_true { broker.count(queue) == 1 }
    end

    it "goes on when the broker was killed and started again", :long do
      skip "BACKHOP_BROKER_CTL is not set" unless ENV["BACKHOP_BROKER_CTL"]
      work = broker.queue({ "x-queue-type" => "quorum" })
      BunnyClient.new(URL, work, Handler.new, **options).tap(&:declare).stop
      broker.control("save")
      handler = Handler.new
      handler.define_singleton_method(:call) do |message|
        super(message)
        raise "again" if message.attempt < 3
      end
      consuming(BunnyClient, URL, work, handler, **options) do
        broker.channel.confirm_select
        10.times { |i| broker.channel.basic_publish(i.to_s, "", work) }
        expect(broker.channel.wait_for_confirms).to be(true)
        handler.saw(5)
        %w[kill start].each { |order| broker.control(order) }
        # If a message was coming back when the broker was killed, a wait queue sends it again after
        # three minutes, or six.
        until_true(400) { handler.messages.select { |each| each.attempt == 3 }.map(&:body).uniq.size == 10 }
        # RabbitMQ 4.0 can lose all of its quorum queues if a queue is deleted while it still
        # settles its dead letters.
        counted = [ENV.fetch("BACKHOP_BROKER_CTL"), "rabbitmqctl", "--silent", "list_queues", "name", "messages"]
        waiting = /^#{Regexp.escape(namespace)}\.wait\S*\t(\d+)$/
        until_true(120) { IO.popen(counted, &:read).scan(waiting).flatten.uniq == ["0"] }
      end
      broker.connect
    end
  end
end
