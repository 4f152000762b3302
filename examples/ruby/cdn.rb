# frozen_string_literal: true

require "bunny"
require "net/http"
require "webrick"

# The rest of the world for the examples: a CDN's purge API, which is full at its peak, and a site
# whose pages change.
#
# Nothing here knows of Backhop. The API is a real HTTP server on this machine.
module CDN
  EXCHANGE = "backhop-example.events"
  QUEUE = "backhop-example.cdn-purge"
  PAGES = [*(1..19).map { |number| "/article/#{number}" }, "/old/front-page"].freeze
  AMQP_URL = ENV.fetch("AMQP_URL", "amqp://guest:guest@localhost/")

  # 507: the API takes no more at the moment.
  class QueueFull < StandardError
    # Seconds; 0 if the API does not say.
    attr_reader :retry_after

    def initialize(retry_after)
      super("507 queue is full")
      @retry_after = retry_after
    end
  end

  # 404: the API does not know the site, and never will.
  class NoSuchSite < StandardError; end

  # A purge API whose peak begins with the first page: it takes that one, and answers 507 to all
  # others.
  class PurgeApi
    attr_reader :purged, :refused

    def initialize(peak: 4)
      @lock = Mutex.new
      @purged = []
      @refused = 0
      @peak = peak
      @ends = nil
      @server = WEBrick::HTTPServer.new(
        BindAddress: "127.0.0.1", Port: 0, AccessLog: [], Logger: WEBrick::Log.new(File::NULL)
      )
      @server.mount("/", Servlet, self)
      Thread.new { @server.start }
    end

    # Status and Retry-After.
    def answer(path)
      @lock.synchronize do
        next [404, nil] if path.start_with?("/old/")
        next [202, nil] if take(path)

        @refused += 1
        [507, (@refused % 9).zero? ? 3 : nil]
      end
    end

    # Purges a page, as a client of the API does.
    def purge(path)
      response = Net::HTTP.start("127.0.0.1", @server.config[:Port]) do |http|
        http.request(Net::HTTPGenericRequest.new("PURGE", false, true, path))
      end
      raise QueueFull, response["Retry-After"].to_f if response.code == "507"
      raise NoSuchSite, "404 no such site" if response.code == "404"
    end

    def stop = @server.shutdown

    private

    def take(path)
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      @ends ||= now + @peak
      @purged << path if @purged.empty? || now >= @ends
    end

    # Answers PURGE, in 5 ms: the time of the API, and not of this machine, limits the rate of the
    # calls.
    class Servlet < WEBrick::HTTPServlet::AbstractServlet
      def do_PURGE(request, response) # rubocop:disable Naming/MethodName
        sleep 0.005
        response.status, retry_after = @options.first.answer(request.path)
        response["Retry-After"] = retry_after.to_s if retry_after
      end
    end
    private_constant :Servlet
  end

  module_function

  # To Bunny, a URI that ends with "/" has a vhost without a name.
  def connect = Bunny.new(AMQP_URL.delete_suffix("/")).start

  # Declares the site's own exchange and the work queue, and publishes an event for each page.
  def change_pages(channel)
    exchange = channel.topic(EXCHANGE, durable: true)
    # RabbitMQ 4.0 counts each requeue, and drops a message at the limit of its queue: 20 by
    # default.
    channel.queue(QUEUE, durable: true, arguments: { "x-queue-type" => "quorum", "x-delivery-limit" => 1_000_000_000 })
           .bind(exchange, routing_key: "article.*")
    PAGES.each { |page| exchange.publish(page, routing_key: "article.updated", persistent: true) }
  end

  # Deletes the example's queues and its exchange. Returns the number of parked messages.
  def clean_up(channel)
    parked_queue = channel.queue("#{QUEUE}.parked", passive: true)
    parked = 0
    parked += 1 while parked_queue.pop.last # its message_count may be 0 on a busy broker
    delete(channel)
    parked
  end

  # Deletes the example's queues and its exchange.
  def delete(channel)
    [QUEUE, "#{QUEUE}.parked"].each { |queue| channel.queue_delete(queue) }
    channel.exchange_delete(EXCHANGE)
  end
end
