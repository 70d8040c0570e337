{{- /* The scripts are one file: the Dataplane API keeps one lua-load-per-thread. */ -}}
{{- if .NormalizesPaths -}}
-- The form in which the path of a request is compared with those of routes. What
-- is passed on is the path as it came.
--
-- The compiler brings the paths of routes into the same form, by NormalPath of
-- compiler/routing/normalpath.go: whoever changes one of the two changes both.

-- What becomes of a byte that stands in a path by itself, and of one that is
-- encoded, by what follows the "%". A byte that may stand in a path (RFC 3986,
-- section 3.3) is decoded, but for "/" and ";", which have a meaning there. Fewer
-- than two digits encode nothing.
local bytes, codes = {}, { [""] = "%25" }
local digits = "0123456789ABCDEFabcdef"
for byte = 0, 255 do
    local char = string.char(byte)
    bytes[char] = char:find("^[%w%-._~!$&'()*+,=:@]") and char or ("%%%02X"):format(byte)
end
for first in digits:gmatch(".") do
    codes[first] = "%25" .. first
    for second in digits:gmatch(".") do
        codes[first .. second] = bytes[string.char(tonumber(first .. second, 16))]
    end
end

-- climb takes away each segment that a ".." follows.
local function climb(path)
    local segments, n = {}, 0
    for segment in path:gmatch("[^/]+") do
        if segment ~= ".." then
            n = n + 1
            segments[n] = segment
        elseif n > 0 then
            n = n - 1
        end
    end
    if n > 0 and path:sub(-1) == "/" then
        n = n + 1
        segments[n] = ""
    end
    return "/" .. table.concat(segments, "/", 1, n)
end

-- normal decodes once, from left to right: what comes of it is not decoded again.
local function normal(path, parameters)
    if parameters == "ignore" then
        path = path:gsub(";[^/]*", "")
    end
    path = path:gsub("[^%w%-._~!$&'()*+,=:@;/%%]", bytes):gsub("%%(%x?%x?)", codes)
    if path:find("/%.%.?$") then
        path = path .. "/"
    end
    path = path:gsub("//+", "/"):gsub("/%.%f[/\0]", "")
    if path:find("/../", 1, true) then
        path = climb(path)
    end
    return path
end

core.register_converters("hapsnap_path", normal)
{{end}}
{{- if .Uses "ExternalAuth"}}
-- External authentication: asks a Service whether a request may pass.
--
-- The action sets txn.auth to "passed", or answers the client. Whatever else
-- happens, an error of this script included, leaves txn.auth unset, and the rule
-- that follows the action refuses the request.

-- What concerns the client's connection or its body, and what is said anew.
local not_sent = {}
for name in ([[
    connection content-length content-type expect host http2-settings keep-alive
    proxy-connection range te trailer transfer-encoding upgrade
    if-match if-modified-since if-none-match if-range if-unmodified-since
    sec-websocket-accept sec-websocket-extensions sec-websocket-key
    sec-websocket-protocol sec-websocket-version
    x-original-host x-original-method x-original-url
    x-auth-request-redirect
    x-forwarded-for x-forwarded-host x-forwarded-method x-forwarded-proto x-forwarded-uri
]]):gmatch("%S+") do
    not_sent[name] = true
end

-- The most cookies of an answer of 2xx that go on to the client.
local most_cookies = 5

-- names returns the elements of a list with commas, in lower case; none for ","
-- and nil, which is all, for "*".
local function names(list)
    if list == "*" then
        return nil
    end
    local out = {}
    for name in list:gmatch("[^,]+") do
        out[name:lower()] = true
    end
    return out
end

-- values returns the values of a header in their order, which HAProxy counts
-- from 0.
local function values(headers, name)
    local out = {}
    local found = headers[name]
    local i = 0
    while found ~= nil and found[i] ~= nil do
        out[#out + 1] = found[i]
        i = i + 1
    end
    return out
end

-- servers keeps the servers of backends in the order of their names, and turns
-- the one that was asked last.
local servers, turns = {}, {}

local function servers_of(backend)
    if servers[backend] == nil then
        local list = {}
        for name, server in pairs(core.backends[backend].servers) do
            list[#list + 1] = { name = name, server = server }
        end
        table.sort(list, function(a, b) return a.name < b.name end)
        servers[backend] = list
    end
    return servers[backend]
end

-- is_usable reports whether a server may get new requests. The name is made anew
-- each time, since HAProxy cuts the string that it is given in two.
local function is_usable(txn, backend, s)
    local draining = s.server:is_draining() -- a number in HAProxy 2.6
    return draining ~= true and draining ~= 1 and txn.f:srv_is_up(backend .. "/" .. s.name) == 1
end

-- next_server returns the address of the next server that is up, other than the
-- one that has just failed, and nil if there is none.
local function next_server(txn, backend, failed)
    local list = servers_of(backend)
    for _ = 1, #list do
        local turn = (turns[backend] or 0) % #list + 1
        turns[backend] = turn
        local s = list[turn]
        if is_usable(txn, backend, s) then
            local address = s.server:get_addr()
            if address ~= failed then
                return address
            end
        end
    end
    return nil
end

-- request_headers returns what the service gets.
local function request_headers(txn, wanted, original)
    local headers = {}
    for name, list in pairs(txn.http:req_get_headers()) do
        if not not_sent[name] and (wanted == nil or wanted[name]) then
            headers[name] = values({ [name] = list }, name)
        end
    end
    for name, value in pairs(original) do
        headers[name] = { value }
    end
    return headers
end

-- original describes the client's request, as endpoints are told of it: see
-- partials/forwarded.cfg.
local function original(txn)
    local sent = txn.http:req_get_headers()
    local secure = txn.f:ssl_fc() == 1 or txn.f:ssl_fc() == true
    local scheme = values(sent, "x-forwarded-proto")[1] or (secure and "https" or "http")
    local host = values(sent, "host")[1] or ""
    local method, uri = txn.f:method(), txn.f:pathq() or "/"
    local addresses = values(sent, "x-forwarded-for")
    return {
        ["x-original-method"] = method,
        ["x-original-host"] = host,
        ["x-original-url"] = scheme .. "://" .. host .. uri,
        ["x-forwarded-method"] = method,
        ["x-forwarded-uri"] = uri,
        ["x-forwarded-proto"] = scheme,
        ["x-forwarded-host"] = values(sent, "x-forwarded-host")[1] or host,
        ["x-forwarded-for"] = #addresses > 0 and table.concat(addresses, ", ") or txn.f:src(),
        ["x-auth-request-redirect"] = uri,
        ["cdn-loop"] = table.concat(values(sent, "cdn-loop"), ", "),
    }
end

-- ask returns the answer of the service, and nil if there is none.
local function ask(txn, backend, method, request)
    local failed = nil
    for _ = 1, 2 do
        local address = next_server(txn, backend, failed)
        if address == nil then
            return nil
        end
        request.dst = address
        local client = core.httpclient()
        local ok, answer = pcall(client[method], client, request)
        if ok and answer ~= nil and answer.status ~= nil and answer.status ~= 0 and answer.status ~= 503 then
            return answer
        end
        failed = address
    end
    return nil
end

local function escape(text)
    return (text:gsub("[^%w%-._~]", function(c) return string.format("%%%02X", c:byte()) end))
end

-- location returns where to sign in, which is told what to come back to.
local function location(sign_in, parameter, back)
    if back == nil then
        return sign_in
    end
    local separator = sign_in:find("?", 1, true) and "&" or "?"
    return sign_in .. separator .. parameter .. "=" .. escape(back)
end

-- refuse answers the client as the service did, or sends it to sign in.
local function refuse(txn, answer, sign_in)
    local headers = { ["set-cookie"] = values(answer.headers, "set-cookie") }
    local reply = txn:reply()
    if answer.status == 401 and sign_in ~= nil then
        headers["location"] = { sign_in }
        reply:set_status(302)
    else
        headers["www-authenticate"] = values(answer.headers, "www-authenticate")
        headers["location"] = values(answer.headers, "location")
        headers["content-type"] = { "text/plain" }
        reply:set_status(answer.status)
        reply:set_body(answer.status == 401 and "unauthorized\n" or "forbidden\n")
    end
    headers["cache-control"] = { "no-store" }
    for name, list in pairs(headers) do
        for _, value in ipairs(list) do
            reply:add_header(name, value)
        end
    end
    txn:done(reply)
end

-- pass lets the request go on with headers of the answer.
local function pass(txn, answer, wanted)
    for name in pairs(wanted) do
        txn.http:req_del_header(name)
        for _, value in ipairs(values(answer.headers, name)) do
            txn.http:req_add_header(name, value)
        end
    end
    for i, cookie in ipairs(values(answer.headers, "set-cookie")) do
        if i <= most_cookies then
            txn:set_var("txn.auth_cookie" .. i, cookie)
        end
    end
    txn:set_var("txn.auth", "passed")
end

local function authenticate(txn, backend, host, path, method, timeout, request_list, answer_list, sign_in, back, parameter)
    local about = original(txn)
    local headers = request_headers(txn, names(request_list), about)
    if host == "*" then -- that of the client's request
        host = "localhost"
        headers["host"] = { about["x-original-host"] }
    end
    local answer = ask(txn, backend, method:lower(), {
        url = "http://" .. host .. path,
        headers = headers,
        timeout = tonumber(timeout),
    })
    if answer == nil then
        return
    end
    if answer.status >= 200 and answer.status < 300 then
        pass(txn, answer, names(answer_list))
    elseif answer.status == 401 or answer.status == 403 then
        local returns = { url = about["x-original-url"], path = about["x-forwarded-uri"] }
        refuse(txn, answer, sign_in ~= "-" and location(sign_in, parameter, returns[back]) or nil)
    end
end

core.register_action("hapsnap_auth", { "http-req" }, authenticate, 10)
{{- end}}{{$limits := or .LimitsBodies (.Uses "WAF")}}{{if and (.Uses "ExternalAuth") $limits}}
{{end}}{{if $limits -}}
-- Bodies of requests without a length are counted as they stream, and cut off when
-- they are larger than the filter's argument, or than what an agent was told of them.
-- Bodies with a length are judged by a rule, before they come.
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
    local told = self.most == nil
    if told then
        self.most = txn:get_var("txn.waf_told") or 0
    end
    -- A message that is there as a whole tells no headers any more.
    local open, headers = pcall(message.get_headers, message)
    if not open then
        if told and txn:get_var("txn.waf_upgrade") == nil then
            filter.register_data_filter(self, message.channel)
        elseif not told and txn.f:req_body_len() > self.most then
            self:refuse(txn)
        end
        return
    end
    if headers["content-length"] ~= nil and not told then
        return
    end
    if headers["upgrade"] ~= nil and headers["transfer-encoding"] == nil then
        return
    end
    filter.register_data_filter(self, message.channel)
end

function Body:refuse(txn)
    txn:set_var("txn.body_over", true)
    error("a request's body is larger than " .. self.most .. " bytes", 0)
end

-- Trailers count as input, too, so that what seems too large is looked at again.
function Body:http_payload(txn, message)
    local size = message:input()
    if self.got + size > self.most then
        size = #(message:body() or "")
    end
    self.got = self.got + size
    if self.got > self.most then
        self:refuse(txn)
    end
end

core.register_filter("hapsnap_body", Body, function(f, arguments)
    f.most = tonumber(arguments[1])
    return f
end)
{{- end}}
{{- if .Uses "Mirror"}}
{{if or $limits (.Uses "ExternalAuth")}}
{{end -}}
-- Mirrors: copies a request, and sends the copy by a socket within HAProxy to the
-- frontend hapsnap_mirror, with the name of a backend in a header. A task does that, so
-- that the request waits for nothing. Whatever goes wrong harms the copy alone.

-- What concerns the client's connection, and what is said anew.
local not_copied = {}
for name in ([[
    connection expect http2-settings keep-alive proxy-connection te trailer
    transfer-encoding upgrade x-hapsnap-mirror
]]):gmatch("%S+") do
    not_copied[name] = true
end

-- Requests that have no body unless they announce one.
local without_body = { DELETE = true, GET = true, HEAD = true, OPTIONS = true, TRACE = true }

-- How many copies may be under way at once, by thread: for one backend, and for all.
-- Seconds that one may take until its answer begins.
local most_of_one, most_of_all, patience = 64, 512, 10
local flying, flying_all = {}, 0

local function send(door, copy)
    local socket = core.tcp()
    socket:settimeout(patience)
    pcall(function()
        if socket:connect(door) then
            socket:send(copy)
            socket:receive("*l")
        end
    end)
    pcall(socket.close, socket)
end

-- Copies wait in a queue for tasks that take one after the other, and end when none has
-- come for a while: HAProxy 2.6 keeps something of every task for ever.
local queue, first, last = {}, 1, 0
local idle, rest, rests = 0, 20, 500 -- milliseconds, and how many

local function next_copy()
    for _ = 1, rests do
        if first <= last then
            local job = queue[first]
            queue[first] = nil
            first = first + 1
            return job
        end
        idle = idle + 1
        core.msleep(rest)
        idle = idle - 1
    end
    return nil
end

local function work()
    for job in next_copy do
        pcall(send, job.door, job.copy)
        flying_all = flying_all - 1
        flying[job.to] = flying[job.to] > 1 and flying[job.to] - 1 or nil
    end
end

-- fly reports whether the copy is sent.
local function fly(door, to, copy)
    if (flying[to] or 0) >= most_of_one or flying_all >= most_of_all then
        return false
    end
    flying[to], flying_all = (flying[to] or 0) + 1, flying_all + 1
    last = last + 1
    queue[last] = { door = door, to = to, copy = copy }
    if last - first + 1 > idle then
        core.register_task(work)
    end
    return true
end

-- body returns the body of a request, and nil if it is not there as a whole. One
-- without a length may go on.
local function body(txn, method, headers)
    local announced, length = headers["content-length"], txn.f:req_body_len()
    if announced == nil then
        return length == 0 and without_body[method] and headers["transfer-encoding"] == nil and "" or nil
    end
    if tonumber(announced[0]) ~= length then
        return nil
    end
    local content = length > 0 and txn.f:req_body() or ""
    return #content == length and content or nil
end

-- copied returns a request as it goes to the socket, and nil if it cannot be copied.
local function copied(txn, backend)
    local method, uri, headers = txn.f:method(), txn.f:pathq(), txn.http:req_get_headers()
    local content = body(txn, method, headers)
    if content == nil or headers["upgrade"] ~= nil or uri == nil or uri:find("[%c ]") then
        return nil
    end
    local lines = { method .. " " .. uri .. " HTTP/1.1" }
    for name, list in pairs(headers) do
        local i = 0
        while not not_copied[name] and list[i] ~= nil do
            if list[i]:find("[\0\r\n]") then
                return nil
            end
            lines[#lines + 1] = name .. ": " .. list[i]
            i = i + 1
        end
    end
    lines[#lines + 1] = "connection: close"
    lines[#lines + 1] = "x-hapsnap-mirror: " .. backend
    return table.concat(lines, "\r\n") .. "\r\n\r\n" .. content
end

-- count has the frontend count what is not copied, by its status: once a second if that
-- is too much, for which a count would be too much as well.
local counted = 0

local function count(door, what)
    local now = core.now().sec
    if what == "hapsnap_busy" and now == counted then
        return
    end
    counted = what == "hapsnap_busy" and now or counted
    fly(door, what, "GET / HTTP/1.1\r\nhost: mirror\r\nconnection: close\r\nx-hapsnap-mirror: " .. what .. "\r\n\r\n")
end

local function mirror(txn, door, backend)
    local copy = copied(txn, backend)
    if copy == nil then
        count(door, "hapsnap_incomplete")
    elseif not fly(door, backend, copy) then
        count(door, "hapsnap_busy")
    end
end

core.register_action("hapsnap_mirror", { "http-req" }, function(...) pcall(mirror, ...) end, 2)
{{- end}}
