{{- if .LimitsBodies -}}
-- Bodies of requests without a length are counted as they stream, and cut off when
-- they are larger than the filter's argument. Bodies with a length are judged by a
-- rule, before they come.
--
-- Only an error of the script ends a request while its body streams. It is answered
-- with 400, which a rule makes 413.

local Body = {}
Body.__index = Body
Body.id = "hapsnap_body"
Body.flags = filter.FLT_CFG_FL_HTX

function Body:new()
    return setmetatable({ got = 0, most = self.most }, Body)
end

-- An upgraded connection has no body. HTTP/2 forbids the header Upgrade, so that
-- only a WebSocket has it there.
function Body:http_headers(txn, message)
    if message:is_resp() then
        return
    end
    local headers = message:get_headers()
    if headers["content-length"] ~= nil then
        return
    end
    if headers["upgrade"] ~= nil and headers["transfer-encoding"] == nil then
        return
    end
    filter.register_data_filter(self, message.channel)
end

-- Trailers count as input, too, so that what seems too large is looked at again.
function Body:http_payload(txn, message)
    local size = message:input()
    if self.got + size > self.most then
        size = #(message:body() or "")
    end
    self.got = self.got + size
    if self.got > self.most then
        txn:set_var("txn.body_over", true)
        error("a request's body is larger than " .. self.most .. " bytes", 0)
    end
end

core.register_filter("hapsnap_body", Body, function(f, arguments)
    f.most = tonumber(arguments[1])
    return f
end)
{{- end}}
