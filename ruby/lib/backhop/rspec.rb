# frozen_string_literal: true

require "backhop/testing"

# Gives each example with the tag `:backhop_broker` a model of RabbitMQ of its own, as
# `backhop_broker`:
#
#     require "backhop/rspec"
#
#     RSpec.describe "a purge", :backhop_broker do
#       it "is parked after its last attempt" do
#         channel = Bunny.new(backhop_broker.url.delete_suffix("/")).start.create_channel
#       end
#     end
#
# The value of the tag is the version of RabbitMQ: `backhop_broker: "4.0"`.
RSpec.shared_context "with a model of RabbitMQ" do
  let(:backhop_broker) do |example|
    version = example.metadata[:backhop_broker]
    @backhop_broker = Backhop::Testing::Broker.new(version: version == true ? "4.3" : version)
  end

  after { @backhop_broker&.close }
end

RSpec.configure { |config| config.include_context "with a model of RabbitMQ", :backhop_broker }
