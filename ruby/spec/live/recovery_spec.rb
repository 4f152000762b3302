# frozen_string_literal: true

require "json"

require "running"
require "spec_helper"
require_relative "support"

# A consumer mends a lost connection and a lost part of the topology.
RSpec.describe "A consumer over Bunny", skip: NEEDS_BROKER do
  include Live

  let(:queue) { broker.queue }
  let(:events) { Running::Events.new }
  let(:options) { { policy: QUICK, namespace: namespace, on_event: events } }

  context "whose user may lose a permission", :long do
    let(:user) { "test-#{SecureRandom.hex(4)}" }
    let(:bunny_log) { StringIO.new }
    # With Bunny 2, a refused recovery waits for the limit. Then Backhop consumes, and Bunny
    # recovers again.
    let(:patient) do
      { connection_name: user, continuation_timeout: 10_000, network_recovery_interval: 3,
        logger: Logger.new(bunny_log), session_error_handler: Thread.new { sleep } }
    end

    before do
      skip "needs the broker of tests/broker" unless ENV["BACKHOP_BROKER_CTL"]
      broker.import(JSON.generate(users: [{ name: user, password: "secret", tags: "" }]))
      permit(".*")
    end

    after { broker.control("eval", %(rabbit_auth_backend_internal:delete_user(<<"#{user}">>, <<"a test">>).)) }

    def permit(read)
      given = %(<<"#{user}">>, <<"/">>, <<".*">>, <<".*">>, <<"#{read}">>, <<"a test">>)
      broker.control("eval", "rabbit_auth_backend_internal:set_permissions(#{given}).")
    end

    # Closes the connection that has the user's name.
    def close_connection
      all = "Connection <- rabbit_networking:connections()"
      named =
        "[{client_properties, Named}] <- [catch rabbit_networking:connection_info(Connection, [client_properties])]"
      is_ours = %(is_list(Named) andalso lists:member({<<"connection_name">>, longstr, <<"#{user}">>}, Named))
      broker.control(
        "eval", %([rabbit_networking:close_connection(Connection, "a test") || #{all}, #{named}, #{is_ours}].)
      )
    end

    # Makes Bunny 3 unregister a channel that the broker closes in a recovery after the recovery.
    # The thread of the recovery holds the lock of channels, from a line on that only Bunny 3 logs.
    def unregister_late(connection)
      lock = connection.instance_variable_get(:@channel_mutex)
      patient.fetch(:logger).define_singleton_method(:debug) do |text = nil, &block|
        super(text, &block)
        lock.enter if block&.call.to_s.start_with?("Will recover 1 consumer")
      end
      connection.after_recovery_completed { lock.exit if lock.mon_owned? }
    end

    it "F10: sends nothing on a channel that Bunny did not open again" do
      url = URL.sub("guest:guest", "#{user}:secret")
      connected(BunnyClient, url, queue, nil, **options, bunny: patient) do |client|
        unregister_late(client.connection)
        again = []
        client.retrier.subscribe(prefetch: 10, threads: 2) do |message|
          again << message.body if message.attempt == 2
          raise "no" if message.attempt == 1
        end
        broker.publish("before", queue)
        until_true { again.include?("before") }
        permit("^$")
        close_connection
        until_true { bunny_log.string.include?("ACCESS_REFUSED") }
        permit(".*")
        until_true do # Bunny 2 may leave a connection behind that has a message
          broker.publish("after", queue)
          sleep 0.2
          again.include?("after")
        end
        expect(bunny_log.string).not_to include("CHANNEL_ERROR")
      end
    end
  end

  it "goes on after a delivery that the broker sent when it had closed the channel", :long do
    bodies = Array.new(15, &:to_s)
    seen = {}
    connected(BunnyClient, URL, queue, nil, **options) do |client|
      client.retrier.subscribe(prefetch: 1) do |message|
        seen[message.body] = true
        next if message.body == bodies.last

        message.delivery_info.channel.ack(message.delivery_info.delivery_tag) # so the broker closes it at Backhop's ack
      end
      bodies.each { |body| broker.publish(body, queue) }
      until_true { seen.keys.sort == bodies.sort }
    end
  end

  %i[create none].each do |mode|
    it "W1: leaves no channel open after the broker cancelled its consumer and it cannot consume again, mode #{mode}" do
      channels = ->(client) { client.connection.instance_variable_get(:@channels).size }
      connected(BunnyClient, URL, queue, nil, **options, mode: mode) do |client|
        seen = Running::Inbox.new
        subscription = client.retrier.subscribe { |message| seen.call(message.body) }
        before = channels.call(client)
        2.times do |round|
          broker.channel.queue_delete(queue)
          2.times { events.get(:unavailable) } # no queue
          broker.queue(name: queue)
          until_true { subscription.state == :ready }
          broker.publish(round.to_s, queue)
          expect(seen.get).to eq(round.to_s)
          until_true { channels.call(client) == before }
        end
      end
    end
  end

  # Returns how many channels a client has open.
  def channels_of(client) = client.connection.instance_variable_get(:@channels).size

  it "closes its channels if it is cancelled, also one that it has left, once the copies are confirmed" do
    connected(BunnyClient, URL, queue, nil, **options, &:declare)
    connected(BunnyClient, URL, queue, nil, **options, mode: :none) do |client|
      before = channels_of(client)
      subscription = client.retrier.subscribe { raise Backhop::Park }
      broker.channel.queue_delete("#{queue}.parked")
      broker.publish("a", queue)
      events.get(:returned)
      broker.channel.queue_delete(queue)
      2.times { events.get(:unavailable) } # no queue
      subscription.cancel(PATIENCE)
      broker.queue(name: "#{queue}.parked")
      until_true { client.retrier.pending.zero? }
      until_true { channels_of(client) == before + 1 } # the one that publishes
      client.retrier.drain(PATIENCE)
      expect(channels_of(client)).to eq(before)
    end
  end

  it "R4-4: has closed its channels when it has drained, and opens others" do
    told = Queue.new
    connected(BunnyClient, URL, queue, nil, **options, on_event: told.method(:push)) do |client|
      before = channels_of(client)
      2.times do |round|
        client.retrier.subscribe { raise Backhop::Park }
        broker.publish(round.to_s, queue)
        until_true { broker.count("#{queue}.parked") == round + 1 }
        client.retrier.drain(PATIENCE)
        until_true { channels_of(client) == before }
      end
    end
    expect(Array.new(told.size) { told.pop.name }.uniq).to contain_exactly(:connected, :delivered, :failed, :parked)
  end

  it "R4-9: does not wait for a handler that never ends if it is cancelled after a reconnect" do
    go = Queue.new
    connected(BunnyClient, proxy.url, queue, nil, **options) do |client|
      seen = Running::Inbox.new
      subscription = client.retrier.subscribe do |message|
        seen.call(message.body)
        go.pop
      end
      events.get(:connected)
      proxy.cut
      events.get(:connected)
      broker.publish("a", queue)
      seen.get
      expect(subscription.cancel(0)).to be(false)
      until_true(PATIENCE / 4) { Thread.list.none? { |thread| thread.name == "backhop-cancel" } } # Bunny waits for 60 s
      go << 1
    end
    proxy.close
  end

  it "F2: by subscribe acknowledges a message whose handler closed its channel, without a second call" do
    calls = 0
    connected(BunnyClient, proxy.url, queue, nil, **options) do |client|
      client.retrier.subscribe do |message|
        calls += 1
        message.delivery_info.channel.close
        proxy.hold # the message does not come again before its success is kept
      end
      broker.publish("a", queue, message_id: "a")
      events.get(:stale)
      proxy.release
      expect(events.get(:succeeded)).to have_attributes(id: "a", attempt: 1)
    end
    expect([calls, broker.count(queue)]).to eq([1, 0])
    proxy.close
  end

  { "subscribe" => ->(client, handler) { client.retrier.subscribe(handler, threads: 2) },
    "wrap" => ->(client, handler) { client.instance_variable_set(:@handler, handler) && client.begin } }
    .each do |name, consume|
    it "R4-3: by #{name} acknowledges nothing on a channel that a handler is closing" do
      other_runs = Queue.new
      is_closed = Queue.new
      calls = []
      handler = lambda do |message|
        calls << message.body
        if message.body == "closes"
          other_runs.pop
          proxy.hold # Bunny gets no answer yet
          is_closed << message.delivery_info.channel.close
        else
          other_runs << true
          # The broker has closed it.
          until_true { broker.channel.queue_declare(queue, passive: true).consumer_count.zero? }
        end
      end
      connected(BunnyClient, proxy.url, queue, nil, **options, threads: 2) do |client|
        client.declare
        transport = client.connection.transport
        consume.call(client, handler)
        %w[closes other].each { |body| broker.publish(body, queue, message_id: body) }
        expect(events.get(:stale)).to have_attributes(id: "other")
        proxy.release
        is_closed.pop
        2.times { events.get(:succeeded) } if name == "subscribe"
        expect(client.connection.transport).to be(transport)
        client.retrier.verify # the broker has not closed the connection
      end
      expect(calls).to contain_exactly("closes", "other")
      proxy.close
    end
  end

  it "F2: in Kicks acknowledges a message whose connection was lost, without a second call", :long do
    calls = 0
    handler = lambda do |message|
      calls += 1
      proxy.cut
      proxy.hold # Bunny does not connect before the success is kept
      until_true { !message.original.here? }
    end
    consuming(KicksClient, proxy.url, queue, handler, **options, bunny: { network_recovery_interval: 2 }) do
      broker.publish("a", queue, message_id: "a")
      events.get(:stale)
      proxy.release
      expect(events.get(:succeeded)).to have_attributes(id: "a", attempt: 1)
    end
    expect([calls, broker.count(queue)]).to eq([1, 0])
    proxy.close
  end

  it "2.1: consumes less and less often while its consumers are cancelled at once, until a message is settled" do
    back_off = Backhop::Policy.new(initial: 0.2, factor: 2, jitter: :none)
    connected(BunnyClient, URL, queue, nil, **options, mode: :none, back_off: back_off) do |client|
      client.retrier.subscribe { nil }
      consumed = Array.new(4) do |round|
        events.get(:connected)
        now.tap do
          broker.channel.queue_delete(queue) if round < 3
          broker.queue(name: queue)
        end
      end
      expect(consumed.each_cons(2).map { |before, after| after - before }).to match([be >= 0.2, be >= 0.4, be >= 0.8])
      broker.publish("a", queue)
      events.get(:succeeded)
      broker.channel.queue_delete(queue)
      expect(events.get(:unavailable)).to have_attributes(delay: 0.4) # no queue; the loss had 0.2 s
    end
  end

  context "when the broker answers a consumer later than Bunny waits" do
    let(:hasty) { { continuation_timeout: 300 } }
    let(:seen) { Queue.new }

    # Waits until each message is handled. The connection of the consumer that got no answer holds
    # none of them.
    def handled(*bodies)
      until_true { (bodies - Array.new(seen.size) { seen.pop.tap { |body| seen << body } }).empty? }
    end

    def subscribed_to(client) = client.retrier.subscribe(prefetch: 5) { |message| seen << message.body }

    it "consumes again after a reconnect, and no connection keeps messages" do
      connected(BunnyClient, proxy.url, queue, nil, **options, bunny: hasty) do |client|
        subscription = subscribed_to(client)
        events.get(:connected)
        proxy.hold_consumer
        proxy.cut
        until_true { proxy.holds_consumer? }
        %w[1 2].each { |body| broker.publish(body, queue, message_id: body) } # the silent connection gets them
        handled("1", "2")
        expect(subscription.ready(PATIENCE)).to be(subscription)
        proxy.release
        until_true { broker.channel.queue_declare(queue, passive: true).consumer_count == 1 }
        broker.publish("3", queue, message_id: "3")
        handled("3")
      end
      proxy.close
    end

    it "raises at the first consumer, which keeps no message" do
      connected(BunnyClient, proxy.url, queue, nil, **options, bunny: hasty) do |client|
        client.declare
        proxy.hold_consumer
        expect { subscribed_to(client) }.to raise_error(Backhop::ConnectionFailedError)
        proxy.release
        until_true { broker.channel.queue_declare(queue, passive: true).consumer_count.zero? }
        subscribed_to(client)
        broker.publish("1", queue)
        handled("1")
      end
      proxy.close
    end

    it "consumes again on another channel if the broker cancelled the consumer" do
      connected(BunnyClient, proxy.url, queue, nil, **options, bunny: hasty) do |client|
        subscription = subscribed_to(client)
        proxy.hold_consumer
        broker.channel.queue_delete(queue)
        broker.queue(name: queue)
        until_true { proxy.holds_consumer? }
        broker.publish("1", queue)
        events.get(:unavailable)
        proxy.release
        handled("1")
        expect(subscription.ready(PATIENCE)).to be(subscription)
      end
      proxy.close
    end
  end

  # Makes the minute's look due. No message arrives meanwhile.
  def look(consumer)
    consumer.retrier.instance_variable_get(:@publisher).instance_variable_set(:@look_due_ms, 0)
  end

  # Bunny's own limit for an answer is longer.
  it "W7: a consumer reports a silent connection and a later answer", :long do
    handler = Handler.new
    mute = { **options, confirm_timeout: 0.5, bunny: { heartbeat: 0 } }
    consuming(SubscribedClient, proxy.url, queue, handler, **mute) do |consumer|
      lost = consumer.retrier.subscribe { nil }
      2.times { events.get(:connected) }
      allow(lost).to receive(:consuming?).and_return(false)
      proxy.hold
      look(consumer)
      silent = events.get(:unavailable)
      expect(silent.to_s).to include("the broker has not answered for 0.5 s")
      expect(silent).to have_attributes(connection: "consume", error: Backhop::WaitTimeoutError)
      expect(consumer.retrier.readiness).to eq([false, false])
      proxy.release
      expect(events.get(:connected).text).to eq("the broker answers again")
      expect(consumer.retrier.readiness).to eq([true, false])
      lost.cancel
      broker.publish("1", queue)
      handler.saw(1)
    end
    proxy.close
  end

  it "W7: a consumer reports a connection that is silent while a look replays", :long do
    mute = { **options, confirm_timeout: 0.5, bunny: { heartbeat: 0 } }
    consuming(SubscribedClient, proxy.url, queue, Handler.new, **mute) do |consumer|
      events.get(:connected)
      is_replaying = Queue.new
      allow(consumer.retrier).to receive(:replay_unroutable).and_wrap_original do |replay|
        proxy.hold
        is_replaying << true
        replay.call
      end
      look(consumer)
      is_replaying.pop
      look(consumer)
      expect(events.get(:unavailable).to_s).to include("the broker has not answered for 0.5 s")
      proxy.release
      events.get(:connected)
    end
    proxy.close
  end

  it "emits for one subscription what changes no state of another one" do
    connected(BunnyClient, URL, queue, nil, **options) do |client|
      over, lost, other = Array.new(3) { client.retrier.subscribe { nil } }
      3.times { events.get(:connected) }
      over.cancel(PATIENCE)
      states = Queue.new
      allow(client.retrier).to receive(:emit).and_wrap_original do |emit, name, **fields|
        emit.call(name, **fields)
        states << [name, *[over, lost, other].map(&:state)] if %i[cancelled unavailable connected].include?(name)
      end
      lost.channel.close
      expect(states.pop.last(3)).to eq(%i[stopped reconnecting ready])
      until_true { lost.state == :ready }
      expect(over.state).to be(:stopped)
    end
  end

  { "by subscribe" => SubscribedClient, "by wrap" => BunnyClient, "in Kicks" => KicksClient }.each do |name, client|
    it "F1: an idle consumer #{name} looks again after a lost connection", long: further?(client) do
      handler = Handler.new
      unroutable = "#{namespace}.unroutable"
      consuming(client, proxy.url, queue, handler, **options) do |consumer|
        transport = consumer.connection.transport
        proxy.cut
        until_true do
          !consumer.connection.transport.equal?(transport) && !Backhop::Bunny::Channels.recovering?(consumer.connection)
        end
        broker.publish("lost", unroutable, headers: { "backhop-queue" => queue, "backhop-attempts" => 1 })
        until_true { broker.count(unroutable) == 1 }
        look(consumer)
        handler.saw(1)
        expect(handler.messages.map(&:body)).to eq(%w[lost])
      end
      proxy.close
    end
  end
end
