# frozen_string_literal: true

require "native"

RSpec.describe Backhop::Error do
  classes = ObjectSpace.each_object(Class).select { |each| each < described_class && each.name && !each.code.empty? }
  status_of = Backhop.const_get(:Status)

  # Every failure of the core, by walking its codes until one has no name.
  codes = (1..1000).lazy.map { |n| [Native.bh_status_name(-n), -n] }.take_while { |name, _| !name.empty? }.to_h

  it "knows every code, each by a class of its own, and no other" do
    expect(codes.size).to be_between(20, 999)
    expect(classes.map { |each| [each.code, each.status] }).to match_array(codes)
  end

  codes.each do |code, status|
    it "has #{code}, with the sentence of the core" do
      error = status_of.error(status)
      expect(error).to be_a(described_class).and be_a(StandardError)
      expect([error.code, error.status, error.message]).to eq([code, status, Native.bh_status_text(status)])
    end
  end

  it "tells what an object has to tell, rather than the sentence" do
    expect(status_of.error(-4, "initial is 0").message).to eq("initial is 0")
    expect(status_of.error(-4, "for another class", Backhop::URIError).message).to eq(Native.bh_status_text(-4))
  end

  it "is an error all the same where a number is no code" do
    expect(status_of.error(-999)).to be_an_instance_of(described_class).and have_attributes(code: "", status: 0)
    expect(status_of.error(-999).message).not_to be_empty
  end

  it "has no code where it is a class of somebody else's" do
    expect(Class.new(Backhop::StateError).new).to have_attributes(code: "", status: 0)
  end

  it "hides none of Ruby's own classes" do
    hidden = Backhop.constants.select { |name| Object.const_defined?(name, false) && name.to_s.end_with?("Error") }
    expect(hidden).to be_empty
  end
end
