// The sum of each work-group's part, in local memory; and its plain counterpart.
__kernel void reduce(__global const float *in, __global float *out, __local float *part) {
  const size_t l = get_local_id(0);
  part[l] = in[get_global_id(0)];
  for (size_t half_size = get_local_size(0) / 2; half_size > 0; half_size /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (l < half_size) part[l] += part[l + half_size];
  }
  if (l == 0) out[get_group_id(0)] = part[0];
}

__kernel void reduce_serial(__global const float *in, __global float *out, const int n) {
  float sum = 0.0f;
  for (int i = 0; i < n; ++i) sum += in[i];
  *out = sum;
}
