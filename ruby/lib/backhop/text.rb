# frozen_string_literal: true

module Backhop
  # Turns untrusted values and byte strings into printable text.
  # @api private
  module Text
    MOST_SHOWN = 60 # characters
    private_constant :MOST_SHOWN

    module_function

    # Returns a value as it is shown in an error message, shortened to 60 characters.
    def shown(value)
      text = value.inspect
      text.size > MOST_SHOWN ? "#{text[0, MOST_SHOWN]}..." : text
    rescue StandardError
      "a #{value.class}"
    end

    # Characters that control a terminal, end a line or change the direction of a text, as in the
    # core's utf8.h.
    CONTROLS = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/
    private_constant :CONTROLS

    # Returns a text as one line, with "?" for each character that controls a terminal.
    def line(text) = utf8(text).gsub(CONTROLS, "?")

    # Returns a text as valid UTF-8. Bytes that are not UTF-8 become "\xff".
    def utf8(text)
      return text if text.ascii_only? && text.encoding.ascii_compatible?

      text = text.encoding == Encoding::BINARY ? text.dup.force_encoding(Encoding::UTF_8) : text.encode(Encoding::UTF_8)
      escaped(text)
    rescue EncodingError
      escaped(text.dup.force_encoding(Encoding::UTF_8))
    end

    def escaped(text) = text.scrub { |bytes| bytes.bytes.map { |byte| format("\\x%02x", byte) }.join }
    private_class_method :escaped
  end
  private_constant :Text
end
