-- Written by `apportion schedule slurm install`. Undo: `apportion schedule slurm undo`.
-- A job that names no partition and has `profile=KEY` in its comment goes where placement.d/KEY says. Whatever is
-- missing, old or broken changes nothing; a choice by the user is never overruled.
local FOLDER = "@FOLDER@/"
local MOST_AGE = @MAX_AGE@
local before_submit, before_modify

-- A script that was here before runs first, as if alone.
local before = loadfile(FOLDER .. "job_submit.before.lua")
if before ~= nil and pcall(before) then
  before_submit, before_modify = slurm_job_submit, slurm_job_modify
end

local function first_line(name)
  local file = io.open(FOLDER .. name, "r")
  if file == nil then return nil end
  local line = file:read("*l")
  file:close()
  return line
end

local function unset(value)
  return value == nil or value == "" or value == slurm.NO_VAL or value == slurm.NO_VAL64
end

local function place(job, partitions)
  if not unset(job.partition) or not unset(job.features) or not unset(job.req_nodes) or not unset(job.reservation) then
    return
  end
  local key = (job.comment or ""):match("profile=([%w_%-]+)")
  if key == nil then return end
  local alive = tonumber(first_line("alive") or "")
  if alive == nil or os.time() - alive > MOST_AGE then return end
  local names, minutes, model = (first_line("placement.d/" .. key) or ""):match("^(%S+) (%d+) (%S+) end$")
  if names == nil then return end
  local asked, fitting = job.time_limit, {}
  for name in names:gmatch("[^,]+") do
    local there = partitions[name]
    local fits = there ~= nil
    if fits and not unset(asked) and not unset(there.max_time) and asked > there.max_time then fits = false end
    if fits then fitting[#fitting + 1] = name end
  end
  if #fitting == 0 then return end
  job.partition = table.concat(fitting, ",")
  if unset(asked) and tonumber(minutes) > 0 then job.time_limit = tonumber(minutes) end
  job.admin_comment = "apportion:" .. key .. ":" .. model
  slurm.log_user("placed on %s by the profile %s", job.partition, key)
end

function slurm_job_submit(job, partitions, user)
  if before_submit ~= nil then
    local answer = before_submit(job, partitions, user)
    if answer ~= nil and answer ~= slurm.SUCCESS then return answer end
  end
  local fine, problem = pcall(place, job, partitions)
  if not fine then slurm.log_info("apportion: %s", tostring(problem)) end
  return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, user)
  if before_modify ~= nil then return before_modify(job, record, partitions, user) end
  return slurm.SUCCESS
end

return slurm.SUCCESS
