# frozen_string_literal: true

require "native"
require "vectors"

RSpec.describe Backhop::Event do
  def made(event, fields, cause)
    native = described_class.made(event.to_sym)
    fields.each do |field, value|
      value = Backhop.const_get(:Status)::CLASSES.fetch(value).status if field == "status"
      described_class.set(native, field.to_sym, value.is_a?(Integer) ? value : Vectors.text(value))
    end
    expect(native.set_cause(Vectors.text(cause))).to eq(0) if cause
    described_class.new(native)
  end

  cases "event" do |given|
    Vectors.only(given, "name outcome event fields cause expect")
    fields = given.fetch("fields", {})
    Vectors.only(fields, "text reason error connection status")
    compare(
      given["expect"],
      event: same(-> { Native.bh_event_name(Native.bh_event_of(Backhop::Plan.outcome(given["outcome"].to_sym))) }),
      of_each: same(-> { Native.bh_event_is_of_each(Native.const_get("BH_EVENT_#{given["event"].upcase}")) == 1 }),
      text: same(-> { made(given["event"], fields, given["cause"]).text }) { |value| Vectors.text(value) }
    )
  end
end
