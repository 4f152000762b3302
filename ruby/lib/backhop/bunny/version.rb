# frozen_string_literal: true

module Backhop
  module Bunny
    # Backhop was not tested with the loaded version of Bunny.
    class VersionError < Error; end

    # The first supported version of Bunny, and the first one after it that is not supported.
    VERSIONS = ["2.19", "4"].freeze

    # Raises VersionError if the version is not supported.
    # @api private
    def self.check_version(version = ::Bunny::VERSION)
      least, over = VERSIONS.map { |each| Gem::Version.new(each) }
      return if Gem::Version.new(version).then { |found| found >= least && found.release < over }

      raise VersionError,
            "Bunny #{version} is loaded, and Backhop #{Backhop::VERSION} works with Bunny from #{least} on and " \
            "below #{over}: have your Gemfile say gem \"bunny\", \">= #{least}\", \"< #{over}\""
    end
  end
end
