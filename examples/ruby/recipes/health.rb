# frozen_string_literal: true

# A worker with a health endpoint, until SIGTERM or Ctrl-C.
#
#     PORT=8080 ruby health.rb

require "webrick"
require "backhop"

$stdout.sync = true

def purge(page)
  puts "began #{page}\n"
  sleep 0.2
  puts "ended #{page}\n"
end

# README: begin
WORKER = Backhop::Worker.new("amqp://localhost", queue: "cdn-purge")

HEALTH = lambda do |_env|                # for Rack; in Rails: get "/healthz", to: HEALTH
  status = %i[ready paused].include?(WORKER.state) ? 200 : 503
  [status, { "content-type" => "text/plain" }, ["#{WORKER.state} #{WORKER.state_reason}"]]
end
# README: end

server = WEBrick::HTTPServer.new(BindAddress: "127.0.0.1", Port: ENV.fetch("PORT", 8080).to_i, AccessLog: [],
                                 Logger: WEBrick::Log.new(File::NULL))
server.mount_proc("/healthz") do |_request, response|
  response.status, headers, body = HEALTH.call({})
  headers.each { |name, value| response[name] = value }
  response.body = body.join
end
serving = Thread.new { server.start }
puts "http://127.0.0.1:#{server.listeners.first.addr[1]}/healthz"

WORKER.run { |message| purge(message.body) }
server.shutdown
serving.join
