# frozen_string_literal: true

require "net/http"
require "tmpdir"

require "program"
require "spec_helper"
require_relative "support"

# The recipes of the guide: programs in examples/ruby/recipes, in their own processes.
module Recipes
  FOLDER = File.expand_path("../../../examples/ruby/recipes", __dir__)
  GEMS = ENV["BACKHOP_GEMS"] || File.expand_path("../../../../shared/gems", __dir__)
  KICKS = { "kicks-3.3.0" => "bunny-2.24.0", "kicks-main" => "bunny-3.2.0" }.freeze

  # A server that forks like Puma's cluster mode, and has the same hooks.
  SERVER = <<~RUBY
    class Server
      def workers(count) = @count = count
      def on_worker_boot(&hook) = @boot = hook
      def on_worker_shutdown(&hook) = @shutdown = hook

      def run
        children = Array.new(@count) { fork { work } }
        sleep
      rescue SignalException
        children.each { |child| Process.kill("TERM", child) }
        exit(Process.waitall.all? { |_, status| status.success? })
      end

      def work
        @boot.call
        sleep
      rescue SignalException
        @shutdown.call
      end
    end

    server = Server.new
    server.instance_eval(<<~'CONFIG')
    %s
    CONFIG
    server.run
  RUBY

  # A running program.
  class Running
    include Patience

    attr_reader :output

    def initialize(text, env)
      @output = +""
      command = [env, RbConfig.ruby, *Program::LOAD_PATHS, "-e", text]
      @io = IO.popen(command, err: %i[child out], pgroup: true)
      @reader = Thread.new { @io.each_line { |line| @output << line } }
    end

    # Waits for a number of lines that match, and returns what their groups, or they themselves,
    # have.
    def await(pattern, count = 1)
      until_true { output.scan(pattern).size >= count || !@reader.alive? }
      found = output.scan(pattern)
      raise "#{pattern} came #{found.size} times of #{count}:\n#{output}" if found.size < count

      found
    end

    # Ends it with SIGTERM, and returns its status.
    def stop
      Process.kill("TERM", @io.pid)
      wait
    end

    def wait
      @reader.join
      Process.wait2(@io.pid).last.tap { @io = nil }
    end

    # Ends its processes if it still runs.
    def kill
      return unless @io

      Process.kill("KILL", -@io.pid)
      wait
    end
  end

  ABSENT = NEEDS_BROKER || ("no examples are here" unless File.directory?(FOLDER))

  # Returns why there is no recipe of this Kicks; nil if there is one.
  def self.absent(kicks)
    ABSENT || ("left out: #{kicks}, which #{GEMS} has not" unless File.directory?(File.join(GEMS, kicks)))
  end

  def self.library(kicks)
    gems = [kicks, "serverengine-2.4.0", KICKS.fetch(kicks), "amq-protocol-2.8.0"]
    gems = gems.map { |gem| File.join(GEMS, gem, "lib") }
    [*gems, *ENV.fetch("RUBYLIB", "").split(":").grep_v(/bunny|amq-protocol/)].join(":")
  end
end

RSpec.describe "A recipe", :long, skip: Recipes::ABSENT do
  include Live

  let(:queue) { broker.queue }
  let(:fresh) { "#{queue}.fresh" } # the program declares it

  after { [fresh, "#{fresh}.parked"].each { |name| broker.channel.queue_delete(name) } }

  def recipe(name) = File.read(File.join(Recipes::FOLDER, "#{name}.rb"))

  # Yields a running program, with the broker and the queue of the test.
  def running_program(text, queue, url: URL, **env)
    text = text.gsub("amqp://localhost", url).gsub(/"(cdn-purge|pages)"/, queue.inspect)
    program = Recipes::Running.new(text, env.transform_keys(&:to_s))
    yield program
  ensure
    program&.kill
  end

  def publish(*pages, to: queue) = pages.each { |page| broker.publish(page, to) }

  def parks(count, queue) = until_true { broker.count("#{queue}.parked") == count }

  def consumers(queue) = broker.channel.queue_declare(queue, passive: true).consumer_count

  # Waits for the program's consumer. A message that is published before may be lost.
  def until_consumed(queue) = until_true { broker.count(queue) && consumers(queue).positive? }

  # Stops the program while its handler has this page: the handler ends, and the queue is empty.
  def expect_drained(program, page, queue)
    publish(page, to: queue)
    program.await(/began #{page}$/)
    expect(program.stop).to be_success, program.output
    expect(program.output).to match(/ended #{page}$/)
    until_true { consumers(queue).zero? }
    expect(broker.count(queue)).to eq(0)
  end

  it "RT11: the first one runs as it stands" do
    running_program("$stdout.sync = true\n#{recipe("first")}", fresh) do |program|
      until_consumed(fresh)
      publish("/index.html", to: fresh)
      program.await(%r{^/index\.html$})
    end
  end

  it "for a thread pool retries, parks, and drains at SIGTERM" do
    running_program(recipe("thread_pool"), fresh) do |program|
      until_consumed(fresh)
      publish("/1", "/2", "/full", to: fresh)
      program.await(/ended/, 2)
      parks(1, fresh)
      expect_drained(program, "/3", fresh)
    end
  end

  it "RT5: for Puma has a consumer in each process, which drains" do
    pages = Array.new(8) { |number| "/#{number}" }
    running_program(format(Recipes::SERVER, recipe("puma")), queue) do |program|
      until_true { consumers(queue) == 2 }
      publish(*pages, "/full")
      ended = program.await(/^(\d+) ended (.*)$/, 8)
      expect(ended.map(&:first).uniq.size).to eq(2)
      expect(ended.map(&:last)).to match_array(pages)
      parks(1, queue)
      expect_drained(program, "/last", queue)
    end
  end

  it "R4-8: for Puma loads as the page shows it" do
    block = recipe("puma")[/^# README: begin$(.*)^# README: end$/m, 1]
    hooks =
      "def workers(_) = nil\ndef on_worker_boot(&) = @boot = proc(&)\ndef on_worker_shutdown(&) = @shutdown = proc(&)\n"
    running_program("#{hooks}#{block}\n@boot.call\n@shutdown.call\nputs 'drained'", queue) do |program|
      program.await(/^drained$/)
    end
  end

  it "for error reporters reports the exceptions of parked messages" do
    publish("/index.html")
    running_program(recipe("error_reporters"), queue) do |program|
      reported = program.await(/^(Rails|Sentry): (#<Backhop::Park.*?>), (.*)$/, 2)
      expect(reported).to match(%w[Rails Sentry].map { |to| [to, /no such site/, /#{queue}.*permanent/] })
    end
  end

  context "for health", :worker do
    def get(program)
      url, = program.await(%r{^http://\S+$})
      Net::HTTP.get_response(URI(url))
    end

    it "answers 200 if the worker consumes, and drains at SIGTERM" do
      running_program(recipe("health"), queue, PORT: "0") do |program|
        answer = until_true { get(program).then { |it| it if it.code == "200" } }
        expect(answer.body).to start_with("ready")
        expect_drained(program, "/1", queue)
      end
    end

    it "answers 503 if the worker cannot connect" do
      TCPServer.open("127.0.0.1", 0) do |silent|
        running_program(recipe("health"), queue, url: "amqp://127.0.0.1:#{silent.addr[1]}", PORT: "0") do |program|
          answer = get(program)
          expect([answer.code, answer.body]).to match(["503", /\A(starting|reconnecting)/])
        end
      end
    end
  end

  Recipes::KICKS.each_key do |kicks|
    context "for #{kicks}", skip: Recipes.absent(kicks) do # in place of the skip above
      let(:library) { Recipes.library(kicks) }

      it "retries, parks, and finishes its work at SIGTERM" do
        running_program(recipe("kicks"), fresh, RUBYLIB: library) do |program|
          until_true { broker.count(fresh) && consumers(fresh) == 2 }
          publish("/1", "/2", "/full", to: fresh)
          program.await(/ended/, 2)
          parks(1, fresh)
          expect_drained(program, "/3", fresh)
        end
      end

      it "RT8: ends the process of a worker that calls exit, and the message comes again" do
        Dir.mktmpdir do |folder|
          done = File.join(folder, "done").inspect
          ending = "(File.write(#{done}, \"\") && exit(7)) unless File.exist?(#{done})"
          text = recipe("kicks").sub("purge(payload)", "#{ending}\npurge(payload)")
          running_program(text, fresh, RUBYLIB: library) do |program|
            until_consumed(fresh)
            publish("/1", to: fresh)
            program.await(%r{ended /1$})
          end
        end
      end
    end
  end
end
